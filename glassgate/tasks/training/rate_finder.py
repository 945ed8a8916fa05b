"""A learning rate to train with, found before the training by Lightning's tuner: the loss while the rate rises."""

import io
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import NamedTuple

from lightning.pytorch.tuner.tuning import Tuner

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.errors import OptionError
from glassgate.tasks.pictures.charts import has_pictures, rate_picture
from glassgate.tasks.progress import Progress
from glassgate.tasks.training.loop import quiet, trainer
from glassgate.tasks.training.module import Training
from glassgate.tasks.training.processes.group import Group
from glassgate.tasks.training.scoring import AnyTask

PICTURE = "learning_rate.svg"

_LOWEST, _HIGHEST = 1e-5, 1.0
_STEPS = 100
_KEPT = 0.98  # of the mean of the losses before, in Lightning's smoothing


class Found(NamedTuple):
    """The result of the test run.

    Attributes:
        rate: the learning rate at which the loss fell fastest, to two digits
        rates, losses: of each step, the losses smoothed
    """

    rate: float
    rates: list[float]
    losses: list[float]

    def draw(self, folder: Path, progress: Progress) -> None:
        """Draw the losses into a run's folder, where matplotlib is installed."""
        if has_pictures():
            rate_picture(self.rates, self.losses, self.rate, folder / PICTURE)
            progress.note(f"learning rate {self.rate:g}: where the loss fell fastest, see {folder / PICTURE}")
        else:
            progress.note(f"learning rate {self.rate:g}: where the loss fell fastest")


class _Test(Training):
    """A training that starts a new epoch without a callback."""

    def set_rate(self) -> None:
        """Leave the rate to the tuner."""

    def on_train_epoch_end(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0


def find_rate(task: AnyTask, data: Sequence[Encoded], processes: Group) -> Found:
    """Train a task's network for 100 steps while the rate rises from 1e-5 to 1; its weights are useless afterwards.

    Raises:
        OptionError: the loss falls at no rate, or one process is not all
    """
    if processes.size > 1:
        raise OptionError(
            "lr_find: one process alone searches; start one, then give its rate to all with --learning-rate"
        )
    module = _Test(task, data, [], processes)
    with quiet(), redirect_stderr(io.StringIO()), tempfile.TemporaryDirectory() as folder:
        tuner = Tuner(trainer(module, limit_val_batches=0, default_root_dir=folder))
        finder = tuner.lr_find(module, min_lr=_LOWEST, max_lr=_HIGHEST, num_training=_STEPS, update_attr=False)
        rate = finder.suggestion() if finder else None
    if finder is None or rate is None:
        raise OptionError("lr_find: the loss became NaN or infinite at the smallest rates; give a --learning-rate")
    return Found(float(f"{rate:.2g}"), finder.results["lr"], _corrected(finder.results["loss"]))


def _corrected(losses: Sequence[float]) -> list[float]:
    """Lightning's smoothed losses; it corrects their start by one step too many, and the first would be half."""
    return [loss * (1 - _KEPT ** (step + 1)) / (1 - _KEPT**step) for step, loss in enumerate(losses, 1)]
