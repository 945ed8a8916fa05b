"""The batch size and the epochs by data size, and the learning rate: warm-up, cosine decay, and a plateau between."""

import math
from collections.abc import Sequence
from typing import NamedTuple

_MIN_BATCH_SIZE, _MAX_BATCH_SIZE = 4, 32
_EXAMPLES_DIVISOR = 64  # the batch size is about the square root of the number of examples / 64
_MIN_STEPS = 2_000
_MIN_EPOCHS, _MAX_EPOCHS = 10, 250

_WINDOW_DIVISOR = 4  # the gain is the improvement in the latest `epochs / 4` epochs
_MIN_GAIN = 0.02  # the plateau ends if the gain is smaller than this fraction of the whole improvement so far
_DECAY_DIVISOR = 4  # after patience runs out, the rate decays for 1/4 of the number of finished epochs


class BySize(NamedTuple):
    """The settings that depend on the number of examples."""

    batch_size: int
    epochs: int


def by_size(examples: int, batch_size: int = 0, epochs: int = 0) -> BySize:
    """Return the batch size and the number of epochs for a number of training examples.

    The batch size is about the square root of 1/64 of the number of examples, as a power of two from 4 to 32. With few
    examples, many small steps train better than few large ones. The number of epochs is the smallest one from 10 to
    250 that gives at least 2,000 steps, or 250 if none does. `make defaults` measures these rules on three data sets
    per task; docs/defaults.md compares them with the best settings found.

    Args:
        examples: the number of sequences, pieces of long sequences, chunks of text or music, or windows of a series
        batch_size, epochs: values to keep; 0 to choose by size

    Example:
        >>> by_size(100), by_size(3_000), by_size(100_000)
        (BySize(batch_size=4, epochs=80), BySize(batch_size=8, epochs=10), BySize(batch_size=32, epochs=10))
    """
    square_root = math.sqrt(max(1, examples) / _EXAMPLES_DIVISOR)
    size = batch_size or min(_MAX_BATCH_SIZE, max(_MIN_BATCH_SIZE, 2 ** round(math.log2(square_root))))
    steps_per_epoch = -(-max(1, examples) // size)
    return BySize(size, epochs or min(_MAX_EPOCHS, max(_MIN_EPOCHS, -(-_MIN_STEPS // steps_per_epoch))))


class Schedule:
    """Warm-up and half a cosine down to zero, interrupted at half of the epochs by a plateau.

    Positions in the training are in epochs from its start. Rates are fractions of the peak rate.

    Args:
        epochs: the planned number of epochs
        max_epochs: the maximum number of epochs, including those of the plateau
        warmup: the fraction of the planned epochs in which the rate rises
        patience: the number of epochs without a better dev score after which the rate decays and training ends; 0
            for no limit

    Attributes:
        held: the number of epochs of the plateau so far, with a constant rate
        ending: the number of epochs before and after patience runs out; None until then
    """

    def __init__(self, epochs: int, max_epochs: int, warmup: float, patience: int = 0):
        self.epochs, self.max_epochs = epochs, max(epochs, max_epochs)
        self.half = -(-epochs // 2)  # the number of epochs before the plateau
        self.warmup, self.patience = warmup, patience
        self.held = 0
        self.ending: tuple[int, int] | None = None

    @property
    def total(self) -> int:
        """The total number of epochs, unless the plateau is extended or patience runs out later."""
        planned = self.epochs + self.held
        return planned if self.ending is None else min(planned, sum(self.ending))

    def done(self, position: float) -> float:
        """The completed fraction of the training; it is constant during the plateau."""
        if position > self.half:
            position = max(self.half, position - self.held)
        return position / self.epochs

    def rate(self, position: float) -> float:
        """The learning rate at a position."""
        if self.ending is not None:
            start, length = self.ending
            return self._planned_rate(start) * max(0.0, 1 - (position - start) / length)
        return self._planned_rate(position)

    def _planned_rate(self, position: float) -> float:
        done = self.done(position)
        if done < self.warmup:
            return done / self.warmup
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - self.warmup) / (1 - self.warmup + 1e-12))))

    def update(self, scores: Sequence[float]) -> None:
        """Extend the plateau, or end the training early, by the dev scores of all epochs so far; larger is better."""
        epoch = len(scores)
        epochs_since_best = epoch - 1 - scores.index(max(scores))
        if self.ending is None and self.patience and epochs_since_best >= self.patience:
            self.ending = epoch, math.ceil(epoch / _DECAY_DIVISOR)
        if self.ending is None and epoch == self.half + self.held and self.total < self.max_epochs:
            # Dev scores vary while the rate is high, so only the second epoch in a row without a gain ends the plateau.
            self.held += self._improves(scores) or (self.held > 0 and self._improves(scores[:-1]))

    def _improves(self, scores: Sequence[float]) -> bool:
        window = max(1, self.epochs // _WINDOW_DIVISOR)
        if len(scores) <= window:
            return False
        best, best_before_window = max(scores), max(scores[:-window])
        return best - best_before_window > _MIN_GAIN * (best - scores[0]) > 0

    def state(self) -> dict[str, object]:
        """Return the state for a checkpoint."""
        return {"held": self.held, "ending": self.ending}

    def restore(self, held: int, ending: tuple[int, int] | None) -> None:
        """Restore the state of a checkpoint."""
        self.held, self.ending = held, ending
