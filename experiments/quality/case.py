"""A case: a task on a data set, with its options, scores and published figures; cases.py lists the cases."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common.score import Score
from glassgate.tasks import task_class
from glassgate.tasks.progress import Progress
from glassgate.tasks.task import Split, Task

THREADS = 1
"""The number of threads of each training run. With one, processor time includes no waiting for other threads."""


@dataclass(frozen=True)
class Reported:
    """A published figure for a score.

    Attributes:
        score: the key of the score
        value: the value in the unit of the score, for example per cent or nats
        who: the source
        setting: the differences from the setting of the case
    """

    score: str
    value: float
    who: str
    setting: str


@dataclass(frozen=True)
class Case:
    """A task on a data set.

    Attributes:
        name: the name on the command line
        what: the name on the page
        task: a name of `glassgate.tasks`
        paths: files below the data folder, by the names of the options
        options: options that differ from the defaults of the task
        seeds: the number of training runs of each side
        scores: the scores, of which the first one is drawn
        reported: figures for comparison, of others and of this project
        note: a remark for readers of the page
        read: a function that reads the data folder, if the task cannot read its formats; None otherwise
        sample: a function of the trained task and the data that returns output of the model as text
        picture: the kind of a further picture, a key of `results.pictures.TITLES`
    """

    name: str
    what: str
    task: str
    paths: Mapping[str, str]
    options: Mapping[str, Any]
    seeds: int
    scores: tuple[Score, ...]
    reported: tuple[Reported, ...] = ()
    note: str = ""
    read: Callable[[Path], Split[Any]] | None = None
    sample: Callable[[Task[Any, Any, Any], Split[Any]], str] | None = None
    picture: str | None = None

    @property
    def by_others(self) -> tuple[Reported, ...]:
        """The figures that others have published."""
        return tuple(figure for figure in self.reported if figure.who not in OWN)

    @property
    def own(self) -> tuple[Reported, ...]:
        """Figures of this project for comparison: earlier training runs in plain PyTorch, and naive forecasts."""
        return tuple(figure for figure in self.reported if figure.who in OWN)

    def run_options(self, data: Path) -> dict[str, Any]:
        """Return the options for the data files, the threads, the device and the interval between saves."""
        paths = {} if self.read else {name: str(data / path) for name, path in self.paths.items()}
        return {**paths, "threads": THREADS, "device": "cpu", "save_every": 3600.0}

    def split(self, data: Path) -> Split[Any]:
        """Read the data."""
        kind = task_class(self.task)
        task = kind(kind.options_type.from_mapping({**self.run_options(data), **self.options}))
        return self.read(data) if self.read else task.read_split(Progress())

    def key(self, seed: int, side: str) -> dict[str, Any]:
        """Return the case, options, seed and side that identify a result."""
        return {"case": self.name, "task": self.task, "options": dict(self.options), "seed": seed, "side": side}

    def command(self) -> str | None:
        """Return the command that trains this case, or None if `read` reads the data."""
        if self.read:
            return None
        words = [f"glassgate train {self.task}"]
        words += [f"--{name} $GLASSGATE_DATA/{path}" for name, path in self.paths.items()]
        for name, value in self.options.items():
            option = name.replace("_", "-")
            words.append(f"--{'' if value else 'no-'}{option}" if isinstance(value, bool) else f"--{option} {value}")
        return " ".join(words)


FIRST_TRY = "plain PyTorch, first try"


LAST_VALUE = "the last value, naive"


OWN = (FIRST_TRY, LAST_VALUE)
"""The sources of figures that this project has measured."""
