"""The learning rate at each moment of a training, and its end: longer while the dev score improves."""

import math
from collections.abc import Sequence

_WINDOW = 4  # the last epochs, one in so many of the planned ones, are compared with those before
_WORTH = 0.02  # of the whole improvement so far: a smaller gain ends the pause
_DECAY = 4  # after patience runs out the rate decays for one epoch in so many of those done


class Schedule:
    """A climb, half a cosine to zero, and a pause half way through it while the dev score improves.

    Args:
        epochs: the planned ones
        most: the bound on all epochs, those of the pause included
        warmup: the fraction of the planned epochs in which the rate rises
        patience: epochs without a better dev score after which the rate decays at once and training ends; 0 for never

    Attributes:
        held: epochs of the pause so far; the rate stays at its value half way
        ending: the epoch at which patience ran out, and the epochs left from there on
    """

    def __init__(self, epochs: int, most: int, warmup: float, patience: int = 0):
        self.epochs, self.most, self.warmup, self.patience = epochs, max(epochs, most), warmup, patience
        self.held = 0
        self.ending: tuple[int, int] | None = None

    @property
    def half(self) -> int:
        """The epoch before which the pause is."""
        return -(-self.epochs // 2)

    @property
    def total(self) -> int:
        """All epochs, as far as is known."""
        planned = self.epochs + self.held
        return planned if self.ending is None else min(planned, sum(self.ending))

    def done(self, place: float) -> float:
        """The fraction of the training that is done, without the pause.

        Args:
            place: in epochs from the start
        """
        if place > self.half:
            place = max(self.half, place - self.held)
        return place / self.epochs

    def rate(self, place: float) -> float:
        """The fraction of the largest learning rate.

        Args:
            place: in epochs from the start
        """
        if self.ending is None:
            return self._planned(place)
        start, length = self.ending
        return self._planned(start) * max(0.0, 1 - (place - start) / length)

    def after(self, scores: Sequence[float]) -> None:
        """Decide after an epoch.

        Args:
            scores: on dev data, of each epoch so far; more is better
        """
        epoch = len(scores)
        stale = epoch - 1 - scores.index(max(scores))
        if self.ending is None and self.patience and stale >= self.patience:
            self.ending = epoch, math.ceil(epoch / _DECAY)
        if self.ending is None and epoch == self.half + self.held and self.total < self.most and self._improves(scores):
            self.held += 1

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
