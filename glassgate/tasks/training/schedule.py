"""The learning rate schedule: warm-up, a cosine decay, and a plateau that lasts while the dev score improves."""

import math
from collections.abc import Sequence

_WINDOW_DIVISOR = 4  # the gain is the improvement in the latest `epochs / 4` epochs
_MIN_GAIN = 0.02  # the plateau ends if the gain is smaller than this fraction of the whole improvement so far
_DECAY_DIVISOR = 4  # after patience runs out, the rate decays for 1/4 of the number of finished epochs


class Schedule:
    """Warm-up and half a cosine down to zero, interrupted at half of the epochs by a plateau.

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
        self.warmup, self.patience = warmup, patience
        self.held = 0
        self.ending: tuple[int, int] | None = None

    @property
    def half(self) -> int:
        """The number of epochs before the plateau."""
        return -(-self.epochs // 2)

    @property
    def total(self) -> int:
        """The total number of epochs, unless the plateau is extended or patience runs out later."""
        planned = self.epochs + self.held
        return planned if self.ending is None else min(planned, sum(self.ending))

    def done(self, position: float) -> float:
        """The completed fraction of the training; it is constant during the plateau.

        Args:
            position: the position, in epochs from the start
        """
        if position > self.half:
            position = max(self.half, position - self.held)
        return position / self.epochs

    def rate(self, position: float) -> float:
        """The learning rate as a fraction of the peak rate.

        Args:
            position: the position, in epochs from the start
        """
        if self.ending is None:
            return self._planned_rate(position)
        start, length = self.ending
        return self._planned_rate(start) * max(0.0, 1 - (position - start) / length)

    def update(self, scores: Sequence[float]) -> None:
        """Extend the plateau, or end the training early, after an epoch.

        Args:
            scores: the dev scores of all epochs so far; larger is better
        """
        epoch = len(scores)
        epochs_since_best = epoch - 1 - scores.index(max(scores))
        if self.ending is None and self.patience and epochs_since_best >= self.patience:
            self.ending = epoch, math.ceil(epoch / _DECAY_DIVISOR)
        if self.ending is None and epoch == self.half + self.held and self.total < self.max_epochs:
            # Dev scores vary while the rate is high, so only the second epoch in a row without a gain ends the plateau.
            self.held += self._improves(scores) or (self.held > 0 and self._improves(scores[:-1]))

    def state(self) -> dict[str, object]:
        """Return the state for a checkpoint."""
        return {"held": self.held, "ending": self.ending}

    def restore(self, held: int = 0, ending: Sequence[int] | None = None) -> None:
        """Restore the state of a checkpoint."""
        self.held, self.ending = held, None if ending is None else (ending[0], ending[1])

    def _planned_rate(self, position: float) -> float:
        done = self.done(position)
        if done < self.warmup:
            return done / self.warmup
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - self.warmup) / (1 - self.warmup + 1e-12))))

    def _improves(self, scores: Sequence[float]) -> bool:
        window = max(1, self.epochs // _WINDOW_DIVISOR)
        if len(scores) <= window:
            return False
        best, best_before_window = max(scores), max(scores[:-window])
        return best - best_before_window > _MIN_GAIN * (best - scores[0]) > 0
