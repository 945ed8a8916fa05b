"""Learning rate range test: selects the rate at which the loss falls fastest while the rate rises (Smith 2017)."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.errors import OptionError
from glassgate.tasks.pictures.charts import has_pictures, rate_picture
from glassgate.tasks.progress import Progress
from glassgate.tasks.training.processes.group import Group
from glassgate.tasks.training.scoring import AnyTask
from glassgate.tasks.training.steps import Training

PICTURE = "learning_rate.svg"

_LOWEST, _HIGHEST = 1e-5, 1.0
_STEPS = 100
_SMOOTHING = 0.98  # decay of the moving average of losses
_DIVERGED = 4.0  # the search ends at this multiple of the smallest loss
_FIRST = 10  # steps that are skipped, because their smoothed losses are noisy


class RateSearch(NamedTuple):
    """The result of the search.

    Attributes:
        rate: the learning rate at which the loss fell fastest, to two digits
        rates, losses: the rate and the smoothed loss of each step
    """

    rate: float
    rates: list[float]
    losses: list[float]

    def draw(self, folder: Path, progress: Progress) -> None:
        """Draw the losses to a run folder if matplotlib is installed, and report the rate."""
        if has_pictures():
            rate_picture(self.rates, self.losses, self.rate, folder / PICTURE)
            progress.note(f"learning rate {self.rate:g}: where the loss fell fastest, see {folder / PICTURE}")
        else:
            progress.note(f"learning rate {self.rate:g}: where the loss fell fastest")


def find_rate(task: AnyTask, data: Sequence[Encoded], processes: Group) -> RateSearch:
    """Train a task's network for 100 steps while the rate rises from 1e-5 to 1. Discard the network afterwards.

    Raises:
        OptionError: the loss is not finite even at small rates, or there are several processes
    """
    if processes.size > 1:
        raise OptionError(
            f"lr_find: expected one process, got {processes.size}; find the rate with one process, then pass it to all "
            "with --learning-rate"
        )
    training = Training(task, data, [], processes)
    rates, losses = np.geomspace(_LOWEST, _HIGHEST, _STEPS).tolist(), list[float]()
    mean = 0.0
    for rate, batch in zip(rates, _endless(training), strict=False):
        training.rate = rate
        if training.backward(batch):
            training.update()
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * training.step.loss
        loss = mean / (1 - _SMOOTHING ** (len(losses) + 1))
        if not math.isfinite(loss) or loss > _DIVERGED * min([*losses, loss]):
            break
        losses.append(loss)
    task.network.cpu()
    if len(losses) < _FIRST + 2:
        raise OptionError("lr_find: the loss became NaN or infinite at the smallest rates; give a --learning-rate")
    steepest = _FIRST + int(np.gradient(losses[_FIRST:], rates[_FIRST : len(losses)]).argmin())
    return RateSearch(float(f"{rates[steepest]:.2g}"), rates[: len(losses)], losses)


def _endless(training: Training) -> Iterator[Batch]:
    """The batches of consecutive epochs."""
    training.network.train()
    while True:
        yield from training.batches_left()
        training.epoch, training.batch = training.epoch + 1, 0
