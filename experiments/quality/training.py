"""Trains one side of a case, and measures the time of each step."""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.environment import environment
from experiments.quality import pictures
from experiments.quality.case import Case
from experiments.quality.plain import plain_task_class, with_plain_layers
from glassgate.tasks import task_class
from glassgate.tasks.progress import Progress
from glassgate.tasks.task import Task
from glassgate.tasks.training.schedule import BySize

Report = Callable[[Mapping[str, Any]], None]


class Meter(Progress):
    """Measures the time of each training step from the end of the previous step.

    The first step of each epoch is not measured, because its time would include compilation, or the scores and
    checkpoints of the previous epoch.

    Args:
        path: a file with a line of JSON for the times of each epoch; a resumed training appends to it
        report: called at the end of each epoch with its number and scores
        wait: called after the first step of each epoch; training continues when it returns
    """

    def __init__(self, path: Path, report: Report, wait: Callable[[], object]):
        self.path, self.report, self.wait = path, report, wait
        self.last_end: tuple[float, float] | None = None
        """The processor time and the elapsed time at the end of the last step."""
        self.clear()

    def clear(self) -> None:
        """Set the times of the epoch to zero."""
        self.units, self.processor, self.wall = 0, 0.0, 0.0

    def begin(self, units: int, done: int) -> None:
        self.last_end = None

    def step(self, units: int, loss: float) -> None:
        now = time.process_time(), time.perf_counter()
        if self.last_end:
            self.units += units
            self.processor += now[0] - self.last_end[0]
            self.wall += now[1] - self.last_end[1]
            self.last_end = now
        else:
            self.wait()
            self.last_end = time.process_time(), time.perf_counter()

    def epoch(self, number: int, scores: Mapping[str, float]) -> None:
        times = {"epoch": number, "units": self.units, "processor": self.processor, "wall": self.wall}
        with self.path.open("a") as file:
            print(json.dumps(times), file=file)
        self.clear()
        self.last_end = None
        self.report({"epoch": number, **scores})

    def times(self) -> list[dict[str, float]]:
        """Return the times of each epoch. If an epoch was repeated after an interruption, its last times count."""
        lines = (json.loads(line) for line in self.path.read_text().splitlines())
        return list({line["epoch"]: line for line in lines}.values())


def train(
    case: Case, seed: int, side: str, data: Path, runs: Path, report: Report, wait: Callable[[], object]
) -> dict[str, Any]:
    """Train one side, or continue an interrupted training.

    Args:
        case, seed, side: the identity of the training run
        data: the folder of data
        runs: the folder of the run folders
        report, wait: see `Meter`

    Returns:
        the measured values as JSON values
    """
    kind = task_class(case.task)
    kind = kind if side == "ours" else plain_task_class(kind)
    options = kind.options_type.from_mapping({**case.run_options(data), **case.options, "seed": seed})
    split = case.split(data)
    folder = runs / f"{case.name}-{seed}-{side}"
    meter = Meter(folder.with_suffix(".times"), report, wait)
    if _is_interrupted(folder, options.to_mapping()):
        task, result = kind.resume(folder, split, progress=meter)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        meter.path.parent.mkdir(parents=True, exist_ok=True)
        meter.path.write_text("")
        task = kind(options)
        result = task.fit(split, run=folder, progress=meter)
    return {
        "dev": result["dev"],
        "test": result["test"],
        "best_epoch": result["best_epoch"],
        "history": result["history"],
        "times": meter.times(),
        "parameters": sum(parameter.numel() for parameter in task.network.parameters()),
        "sample": case.sample(task, split) if case.sample and side == "ours" else None,
        "picture": pictures.picture_values(case.picture, task, split) if case.picture and side == "ours" else None,
        "crosswise": largest_change(case, task, split.test, result["test"]) if side == "ours" else None,
        "environment": environment(options.threads),
    }


def largest_change(case: Case, task: Task[Any, Any, Any], test: Sequence[Any], scores: Mapping[str, float]) -> float:
    """Replace the layers by those of `torch.nn` with the same weights. Returns the largest change of a test score."""
    task.network = with_plain_layers(task.network)
    new_scores = task.evaluate(test)
    return max(abs(new_scores[score.key] - scores[score.key]) for score in case.scores)


def _is_interrupted(folder: Path, options: Mapping[str, Any]) -> bool:
    """Whether the folder contains an unfinished run with these options."""
    if not (folder / "run.json").exists() or (folder / "metrics.json").exists():
        return False
    stored = json.loads((folder / "run.json").read_text("utf-8"))["options"]
    by_size = [name for name in (*BySize._fields, "learning_rate") if not options[name]]
    return bool({**stored, **dict.fromkeys(by_size, 0)} == options)
