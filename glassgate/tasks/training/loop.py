"""The training loop."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.progress import Progress
from glassgate.tasks.runs import Run
from glassgate.tasks.training.baselines import advice, baseline_scores
from glassgate.tasks.training.checkpoints import Checkpointer
from glassgate.tasks.training.logs import Logs
from glassgate.tasks.training.processes.group import Group
from glassgate.tasks.training.scoring import AnyTask, score
from glassgate.tasks.training.steps import Training


def train(
    task: AnyTask, data: Mapping[str, Sequence[Encoded]], run: Run | None, progress: Progress, processes: Group
) -> dict[str, Any]:
    """Train the task's network, from the run's checkpoint if there is one, and load the weights of the best epoch.

    Args:
        data: the encoded parts "train", "dev" and "test"
        run: the run folder; None to write no files, as in all processes except process 0
        progress: receives the reports
        processes: the processes that divide each batch

    Returns:
        the scores of each epoch, the dev and test scores of the best epoch, and the speed
    """
    training = Training(task, data["train"], data["dev"], processes)
    checkpointer = Checkpointer(training, run, progress)
    checkpointer.restore()
    if not checkpointer.finished:
        _announce(training, data, progress)
        _run_epochs(training, checkpointer)
        if data["dev"] and checkpointer.best_index == len(training.history) - 1:
            more_epochs = 2 * len(training.history)
            progress.note(f"the last epoch was the best one; train longer for a better score: --epochs {more_epochs}")
    task.network.load_state_dict(checkpointer.best)
    task.network.eval()
    refined = task.refine(data["train"], data["dev"])
    if refined:
        progress.note(refined)
        if run:
            run.save_model(task.network.state_dict())
    best = training.history[checkpointer.best_index]
    dev = {name: value for name, value in best.items() if name not in ("epoch", "loss")}
    result = {
        "dev": score(task, data["dev"], processes=processes) if refined and data["dev"] else dev,
        "test": score(task, data["test"], processes=processes) if data["test"] else {},
        "best_epoch": best["epoch"],
        "history": training.history,
        "seconds": round(training.seconds, 3),
        "units_per_second": round(training.units / max(training.seconds, 1e-9)),
        "padding": round(training.padding_fraction, 4),
        "threads": torch.get_num_threads(),
    }
    optional = {
        "processes": processes.size if processes.size > 1 else None,
        "warnings": checkpointer.health.messages,
        "signatures": task.summary.signatures(),
    }
    result |= {name: value for name, value in optional.items() if value}
    if run:
        run.finish(result)
        if scored_data := data["test"] or data["dev"]:
            task.summary.write(scored_data, run.path)
        if task.options.baselines and (compared := baseline_scores(task, data, progress)):
            result["baselines"] = compared
            if sentence := advice(task, result):
                result["warnings"] = [*result.get("warnings", ()), sentence]
            run.finish(result)
    return result


def _announce(training: Training, data: Mapping[str, Sequence[Encoded]], progress: Progress) -> None:
    """Report the size of an epoch, warnings about data and options, and the estimated time."""
    task, options, processes = training.task, training.task.options, training.processes
    unit = "tokens" if {"units", "source"} & task.vocabularies.keys() else "time steps"
    progress.note(
        f"{training.units_per_epoch:,} {unit} per epoch; padding is {training.padding_fraction:.1%} of the batches"
    )
    if processes.size > 1:
        progress.note(f"each batch of {options.batch_size} is shared by {processes}")
    if options.patience and not data["dev"]:
        progress.note("patience: it needs dev data; without them the training runs for all epochs")
    if options.lyapunov and not data["dev"]:
        progress.note("lyapunov: it needs dev data; without them no exponents are logged")
    for sentence in task.warnings:
        progress.note(f"warning: {sentence}")
    if processes.is_main and type(progress) is not Progress:  # the estimate costs two steps
        progress.note(training.estimate_duration())


def _run_epochs(training: Training, checkpointer: Checkpointer) -> None:
    """Train to the end of the schedule."""
    progress = checkpointer.progress
    progress.begin(training.schedule.total * training.units_per_epoch, training.units)
    if checkpointer.run:
        checkpointer.logs = Logs(checkpointer.run, training.task.monitor, training.steps)
        training.layer_values = {}
    try:
        with checkpointer.stop.listen():
            checkpointer.start()
            while not checkpointer.finished:
                training.network.train()
                for batch in training.batches_left():
                    training.set_rate()
                    if training.backward(batch):
                        training.update()
                    checkpointer.after_batch()
                if training.dev:
                    training.evaluate()
                checkpointer.after_epoch()
    finally:
        training.network.cpu()
        progress.end()
        if checkpointer.logs:
            checkpointer.logs.close()
