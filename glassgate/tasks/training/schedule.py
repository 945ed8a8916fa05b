"""The learning rate schedule: warm-up, a cosine decay, and a plateau that lasts while the dev score improves."""

import math
from collections.abc import Sequence

_WINDOW = 4  # the last 1/4 of the planned number of epochs is compared with the epochs before
_WORTH = 0.02  # the plateau ends if the gain is smaller than this fraction of the whole improvement so far
_DECAY = 4  # after patience runs out, the rate decays for 1/4 of the number of epochs done


class Schedule:
    """Warm-up and half a cosine down to zero, with a plateau half way while the dev score improves.

    Args:
        epochs: the planned number of epochs
        most: the maximum number of epochs, including those of the plateau
        warmup: the fraction of the planned epochs in which the rate rises
        patience: the number of epochs without a better dev score after which the rate decays and training ends; 0
            disables it

    Attributes:
        held: the number of epochs of the plateau so far, with a constant rate
        ending: the epoch at which patience ran out, and the number of epochs left from there; None before
    """

    def __init__(self, epochs: int, most: int, warmup: float, patience: int = 0):
        self.epochs, self.most, self.warmup, self.patience = epochs, max(epochs, most), warmup, patience
        self.held = 0
        self.ending: tuple[int, int] | None = None

    @property
    def half(self) -> int:
        """The epoch at which the plateau begins."""
        return -(-self.epochs // 2)

    @property
    def total(self) -> int:
        """The total number of epochs, as known so far."""
        planned = self.epochs + self.held
        return planned if self.ending is None else min(planned, sum(self.ending))

    def done(self, place: float) -> float:
        """The completed fraction of the training, without the plateau.

        Args:
            place: the position, in epochs from the start
        """
        if place > self.half:
            place = max(self.half, place - self.held)
        return place / self.epochs

    def rate(self, place: float) -> float:
        """The learning rate as a fraction of the peak rate.

        Args:
            place: the position, in epochs from the start
        """
        if self.ending is None:
            return self._planned(place)
        start, length = self.ending
        return self._planned(start) * max(0.0, 1 - (place - start) / length)

    def after(self, scores: Sequence[float]) -> None:
        """Extend the plateau, or end the training early, after an epoch.

        Args:
            scores: the dev scores of all epochs so far; larger is better
        """
        epoch = len(scores)
        stale = epoch - 1 - scores.index(max(scores))
        if self.ending is None and self.patience and stale >= self.patience:
            self.ending = epoch, math.ceil(epoch / _DECAY)
        if self.ending is None and epoch == self.half + self.held and self.total < self.most:
            # Dev scores vary while the rate is high, so only the second epoch in a row without a gain ends the plateau.
            self.held += self._improves(scores) or (self.held > 0 and self._improves(scores[:-1]))

    def state(self) -> dict[str, object]:
        """Return the state for a checkpoint."""
        return {"held": self.held, "ending": self.ending}

    def restore(self, held: int = 0, ending: Sequence[int] | None = None) -> None:
        """Restore the state of a checkpoint."""
        self.held, self.ending = held, None if ending is None else (ending[0], ending[1])

    def _planned(self, place: float) -> float:
        done = self.done(place)
        if done < self.warmup:
            return done / self.warmup
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - self.warmup) / (1 - self.warmup + 1e-12))))

    def _improves(self, scores: Sequence[float]) -> bool:
        window = max(1, self.epochs // _WINDOW)
        if len(scores) <= window:
            return False
        before, best = max(scores[:-window]), max(scores)
        return best - before > _WORTH * (best - scores[0]) > 0
