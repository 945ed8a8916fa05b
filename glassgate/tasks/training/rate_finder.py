"""Learning rate range test (Smith 2017): raises the rate at each step, and finds where the loss falls fastest."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.errors import OptionError
from glassgate.tasks.pictures.charts import has_matplotlib, range_test_picture
from glassgate.tasks.progress import Progress
from glassgate.tasks.training.processes.group import Group
from glassgate.tasks.training.scoring import AnyTask
from glassgate.tasks.training.steps import Training

PICTURE = "learning_rate.svg"

_MIN_RATE, _MAX_RATE = 1e-5, 1.0
_STEPS = 100
_SMOOTHING = 0.98  # decay of the moving average of losses
_DIVERGED = 4.0  # the search ends at this multiple of the smallest loss
_SKIPPED = 10  # first steps that are ignored, because their smoothed losses are noisy


class RateSearch(NamedTuple):
    """The learning rate at which the loss fell fastest, to two digits, and the rate and smoothed loss of each step."""

    rate: float
    rates: list[float]
    losses: list[float]

    def draw(self, folder: Path, progress: Progress) -> None:
        """Draw the losses to a run folder if matplotlib is installed, and report the rate."""
        note = f"the loss fell fastest at learning rate {self.rate:g}"
        if has_matplotlib():
            range_test_picture(self.rates, self.losses, self.rate, folder / PICTURE)
            note += f"; see {folder / PICTURE}"
        progress.note(note)


def find_rate(task: AnyTask, data: Sequence[Encoded], processes: Group) -> RateSearch:
    """Train a task's network, to be discarded afterwards, for at most 100 steps in which the rate rises."""
    if processes.size > 1:
        raise OptionError(
            f"lr_find: expected one process, got {processes.size}; find the rate with one process, then pass it to all "
            "with --learning-rate"
        )
    training = Training(task, data, [], processes)
    rates, losses = np.geomspace(_MIN_RATE, _MAX_RATE, _STEPS).tolist(), list[float]()
    moving_average = 0.0
    for rate, batch in zip(rates, _cycled_batches(training), strict=False):
        training.rate = rate
        if training.backward(batch):
            training.update()
        moving_average = _SMOOTHING * moving_average + (1 - _SMOOTHING) * training.read()[-1].loss
        loss = moving_average / (1 - _SMOOTHING ** (len(losses) + 1))
        if not math.isfinite(loss) or loss > _DIVERGED * min([*losses, loss]):
            break
        losses.append(loss)
    task.network.cpu()
    if len(losses) < _SKIPPED + 2:
        raise OptionError("lr_find: the loss diverged at the smallest rates; give a --learning-rate")
    steepest = _SKIPPED + int(np.gradient(losses[_SKIPPED:], rates[_SKIPPED : len(losses)]).argmin())
    return RateSearch(float(f"{rates[steepest]:.2g}"), rates[: len(losses)], losses)


def _cycled_batches(training: Training) -> Iterator[Batch]:
    """Yield the batches of one epoch after another, without end."""
    training.network.train()
    while True:
        yield from training.batches_left()
        training.epoch, training.batch = training.epoch + 1, 0
