"""A training from its checkpoint, or its start, to its end."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.progress import Progress
from glassgate.tasks.runs import Run
from glassgate.tasks.training.checkpoints import Keeper
from glassgate.tasks.training.logs import Logs
from glassgate.tasks.training.processes.group import Group
from glassgate.tasks.training.scoring import AnyTask, score
from glassgate.tasks.training.steps import Training


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
    training = Training(task, data["train"], data["dev"], processes)
    keeper = Keeper(training, run, progress)
    keeper.restore()
    if not keeper.finished:
        what = "tokens" if {"units", "source"} & task.vocabularies.keys() else "time steps"
        progress.note(f"{training.units_an_epoch:,} {what} per epoch; padding is {training.padding:.1%} of the batches")
        if processes.size > 1:
            progress.note(f"each batch of {options.batch_size} is shared by {processes}")
        if options.patience and not data["dev"]:
            progress.note("patience: it needs dev data; without them the training runs for all epochs")
        for sentence in task.warnings:
            progress.note(f"warning: {sentence}")
        if processes.leads and type(progress) is not Progress:
            progress.note(training.forecast())
        progress.begin(training.schedule.total * training.units_an_epoch, training.units)
        if run:
            keeper.logs = Logs(run, task.monitor, training.steps)
            training.watched = {}
        try:
            with keeper.stop.listening():
                _run_epochs(training, keeper)
        finally:
            task.network.cpu()
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
        "seconds": round(training.seconds, 3),
        "units_per_second": round(training.units / max(training.seconds, 1e-9)),
        "padding": round(training.padding, 4),
        "threads": torch.get_num_threads(),
    }
    if processes.size > 1:
        result["processes"] = processes.size
    if keeper.health.messages:
        result["warnings"] = keeper.health.messages
    if signatures := task.summary.signatures():
        result["signatures"] = signatures
    if run:
        run.finish(result)
        if shown := data["test"] or data["dev"]:
            task.summary.write(shown, run.path)
    return result


def _run_epochs(training: Training, keeper: Keeper) -> None:
    """Train to the end of the schedule; the keeper saves, logs and breaks off."""
    keeper.start()
    while not keeper.finished:
        training.network.train()
        for batch in training.batches_left():
            training.set_rate()
            if training.backward(batch):
                keeper.before_update()
                training.update()
            keeper.after_batch()
        if training.dev:
            training.evaluate()
        keeper.after_epoch()
