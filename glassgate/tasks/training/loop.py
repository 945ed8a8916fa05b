"""Training by Lightning, which can be interrupted and resumed after any step."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.progress import Progress
from glassgate.tasks.runs import Run
from glassgate.tasks.training.checkpoints import Keeper
from glassgate.tasks.training.logs import Logs
from glassgate.tasks.training.module import Training
from glassgate.tasks.training.processes.group import Group
from glassgate.tasks.training.scoring import AnyTask, score


def train(
    task: AnyTask,
    data: Mapping[str, Sequence[Encoded]],
    run: Run | None,
    progress: Progress,
    processes: Group,
) -> dict[str, Any]:
    """Train the task's network, from the run's checkpoint on if there is one, and leave the best weights in it.

    Args:
        data: its parts train, dev and test
        run: where it is kept; None to keep it in memory alone, and in all processes but the first
        progress: receives the reports
        processes: that share each batch

    Returns:
        each epoch's scores, those on dev and test of the best one, and the speed

    Raises:
        UserError: the loss became NaN or infinite, or the disk is full
        Interrupted: Ctrl-C or SIGTERM
    """
    options = task.options
    module = Training(task, data["train"], data["dev"], processes)
    keeper = Keeper(module, run, progress)
    keeper.restore()
    if not keeper.finished:
        progress.note(f"{module.units_an_epoch:,} units per epoch; padding is {module.padding:.1%} of the batches")
        if processes.size > 1:
            progress.note(f"each batch of {options.batch_size} is shared by {processes}")
        if options.patience and not data["dev"]:
            progress.note("patience: there is no dev data to tell a better epoch by, so none ends the training early")
        for sentence in task.warnings:
            progress.note(f"warning: {sentence}")
        if processes.leads and type(progress) is not Progress:
            progress.note(module.forecast())
        progress.begin(module.schedule.total * module.units_an_epoch, module.units)
        if run:
            keeper.logs = Logs(run, task.monitor, module.steps)
            module.watched = {}
        try:
            with quiet(), keeper.stop.listening():
                trainer(module, max_epochs=module.schedule.most - module.epoch, callbacks=[keeper]).fit(module)
        except SystemExit:  # what Lightning makes of a second Ctrl-C
            if keeper.stop.received:
                raise KeyboardInterrupt(keeper.stop.received) from None
            raise
        finally:
            progress.end()
            if keeper.logs:
                keeper.logs.close()
        if data["dev"] and keeper.best_epoch == len(keeper.history) - 1:
            more = 2 * len(keeper.history)
            progress.note(f"the last epoch was the best one; train longer for a better score: --epochs {more}")
    task.network.load_state_dict(keeper.best)
    task.network.eval()
    best = keeper.history[keeper.best_epoch]
    result = {
        "dev": {name: value for name, value in best.items() if name not in ("epoch", "loss")},
        "test": score(task, data["test"], processes=processes) if data["test"] else {},
        "best_epoch": best["epoch"],
        "history": keeper.history,
        "seconds": round(module.seconds, 3),
        "units_per_second": round(module.units / max(module.seconds, 1e-9)),
        "padding": round(module.padding, 4),
        "threads": torch.get_num_threads(),
    }
    if processes.size > 1:
        result["processes"] = processes.size
    if keeper.health.said:
        result["warnings"] = keeper.health.said
    if signatures := task.summary.signatures():
        result["signatures"] = signatures
    if run:
        run.finish(result)
        if shown := data["test"] or data["dev"]:
            task.summary.write(shown, run.path)
    return result


def trainer(module: Training, **more: Any) -> Trainer:
    """Return Lightning's trainer for the options.

    Lightning runs the loop: devices, precision, clipping, accumulation, several processes, the rate finder.
    These of its features are off:

    - sampler: `Share` gives each process its rows, so that streams stay with their process
    - sanity check: a resumed training would draw other random numbers than an uninterrupted one
    - checkpoints: Lightning's are pickles, and resume between epochs; ours are safetensors and resume after any step
    - logger: it writes while it logs; ours keeps its rows in step with the checkpoint, so that a resumed log has no gap
    - progress bar and model summary: the command line has one bar for several trainings, and prints the sizes itself

    Args:
        module: the network to train
        more: further arguments of the trainer
    """
    options, world = module.task.options, module.processes.world
    return Trainer(
        accelerator=options.device,
        devices=world.local_size,
        num_nodes=world.nodes,
        # Weights are equal from the start; buffers, such as states of streams, belong to each process.
        strategy=DDPStrategy(broadcast_buffers=False, init_sync=False) if world.size > 1 else "auto",
        plugins=[world.environment()],
        use_distributed_sampler=False,
        precision=options.precision,
        gradient_clip_val=options.clip or None,
        accumulate_grad_batches=options.accumulate,
        reload_dataloaders_every_n_epochs=1,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **more,
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Lightning's notices, and warnings about its own inside, from the user's terminal."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.")
            yield
    finally:
        log.setLevel(level)
