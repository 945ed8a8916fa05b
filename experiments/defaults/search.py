"""Trains with given settings, stores results as JSON, and searches for better settings than the defaults."""

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from experiments.common.store import Point, Store
from experiments.defaults.sets import Set
from glassgate.tasks import task_class
from glassgate.tasks.data.batches import lengths
from glassgate.tasks.task import Split
from glassgate.tasks.training.schedule import by_size

SIMPLE = "simple-models"
"""The name of the file with the scores of simple models."""
SEEDS = (1, 2, 3)
"""The search trains with the first seed. The defaults and the best settings found are trained with all seeds."""

_VALUES: dict[str, tuple[float, ...]] = {
    "learning_rate": (1e-3, 2e-3, 4e-3, 8e-3, 16e-3),
    "epochs": (5, 10, 20, 40, 80),
    "dropout": (0.0, 0.2, 0.4),
    "batch_size": (2, 4, 8, 16, 32, 64, 128),
    "hidden_size": (64, 128, 256, 512),
}
"""The settings that the search changes, in this order, and their values. It tries the next larger and smaller value."""


@dataclass(frozen=True)
class Settings:
    """The settings that the search changes."""

    batch_size: int
    learning_rate: float
    dropout: float
    hidden_size: int
    epochs: int


class Results(Store):
    """A folder of results, with a file for each data set, and one for the scores of simple models."""

    def get(self, data: Set, settings: Settings, seed: int) -> Point | None:
        """Return the result of a training run, or None if it is missing."""
        return self.find(data.name, key(settings, seed))

    def searched(self, data: Set) -> list[Point]:
        """Return the results of the first seed, from which the search chooses."""
        return self.points(data.name, {"seed": SEEDS[0]})

    def simple(self, data: Set) -> dict[str, float]:
        """Return the test score of each simple model on a data set; empty if they have not been measured."""
        point = self.find(SIMPLE, {"set": data.name}) or {"scores": {}}
        return dict(point["scores"])


def key(settings: Settings, seed: int) -> dict[str, Any]:
    """Return what identifies a training run on a data set."""
    return {"settings": asdict(settings), "seed": seed}


def examples_of(data: Set, split: Split[Any]) -> int:
    """Return the number of training examples of a data set, as its task counts them."""
    kind = task_class(data.task)
    task = kind(kind.options_type.from_mapping(data.options))
    task.vocabularies = task.collect(split.train)
    return task.batching().count_examples(lengths(task.encoded(split.train)))


def defaults(data: Set, examples: int) -> Settings:
    """Return the default settings of the task for this number of examples."""
    options: Any = task_class(data.task).options_type.from_mapping(data.options)
    size = by_size(examples)
    epochs = data.epochs or size.epochs
    rate = options.rate_for(size.batch_size, is_series=True) if data.is_series else options.rate_for(size.batch_size)
    return Settings(size.batch_size, rate, options.dropout, options.hidden_size, epochs)


def fixed(data: Set, examples: int) -> Settings:
    """Return the default settings with a batch size of 32 and 10 epochs."""
    return replace(defaults(data, examples), batch_size=32, epochs=data.epochs or 10)


def train(data: Set, split: Split[Any], settings: Settings, seed: int) -> dict[str, Any]:
    """Train on one thread. Returns the scores of the best epoch, and the processor time in seconds."""
    kind = task_class(data.task)
    torch.set_num_threads(1)
    start = time.process_time()
    options = {**data.options, **asdict(settings), "seed": seed, "threads": 1, "device": "cpu"}
    result = kind(kind.options_type.from_mapping(options)).fit(split)
    return {
        "examples": examples_of(data, split),
        "dev": result["dev"].get(data.score.key),
        "test": result["test"][data.score.key],
        "best_epoch": result["best_epoch"],
        "seconds": round(time.process_time() - start, 1),
    }


def search(data: Set, start: Settings) -> Generator[Settings, Point, None]:
    """Yield settings to train with, and receive their results, until no change of one setting is better.

    Changes start from the settings with the best dev score so far.
    """
    best_settings, best_result = start, (yield start)
    tried = {start}
    improved = True
    while improved:
        improved = False
        for name in _VALUES:
            for step in (1, -1):
                while not (data.epochs and name == "epochs"):
                    settings = _next(best_settings, name, step)
                    if settings is None or settings in tried:
                        break
                    tried.add(settings)
                    result = yield settings
                    if not is_better(data, result, best_result):
                        break
                    best_settings, best_result, improved = settings, result, True


def is_better(data: Set, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a training run has a better dev score than another one."""
    return bool(one["dev"] < other["dev"] if data.score.lower_is_better else one["dev"] > other["dev"])


def best(data: Set, results: Sequence[Point]) -> Settings:
    """Return the settings with the best dev score, the first ones if several have it."""
    choose = min if data.score.lower_is_better else max
    return Settings(**choose(results, key=lambda result: result["dev"])["settings"])


def _next(settings: Settings, name: str, step: int) -> Settings | None:
    """Return the settings with the next larger (step 1) or smaller (step -1) value of one setting, if any."""
    value = getattr(settings, name)
    values = [other for other in _VALUES[name] if (other - value) * step > 1e-9]
    if not values:
        return None
    return Settings(**{**asdict(settings), name: min(values) if step > 0 else max(values)})
