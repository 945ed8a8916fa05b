"""The windows that a network reads, batch by batch, and numbers that are read and scaled when they are indexed."""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.data.batches import Batches, Cuts, Encoded, Lengths
from glassgate.tasks.data.batching import Batching
from glassgate.tasks.data.series import Series
from glassgate.tasks.forecasting.options import ForecastingOptions

Part = Callable[[int, int], np.ndarray]
"""From a stretch to its numbers, `(stop - start, C)`."""


class Windows(Cuts):
    """All windows of so many steps, batch by batch.

    Args:
        lengths: steps of each series
        size: steps of a window
        batch_size: windows of a batch
        every: steps between the starts of windows of a series
        random: draws their order; None for that of the series

    Example:
        >>> [[(piece.index, piece.start) for piece in batch] for batch in Windows([4, 3, 2], 3, 2)]
        [[(0, 0), (0, 1)], [(1, 0)]]
    """

    def __init__(
        self,
        lengths: Lengths,
        size: int,
        batch_size: int,
        every: int = 1,
        random: np.random.Generator | None = None,
    ):
        counts = count(lengths, size, every)
        kind = np.int32 if np.sum(lengths, dtype=np.int64) < 2**31 else np.int64
        self.index = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        first = (np.cumsum(counts) - counts).astype(kind)
        self.start = (np.arange(len(self.index), dtype=kind) - first[self.index]) * kind(every)
        self.stop = self.start + kind(size)
        if random is not None:
            self.order(random.permutation(np.arange(len(self.index), dtype=kind)))
        starts = np.arange(0, len(self.index), batch_size)
        self.bounds = np.stack([starts, np.minimum(starts + batch_size, len(self.index))], 1)


def count(lengths: Lengths, size: int, every: int = 1) -> np.ndarray:
    """Return how many windows each series has, `(N,)`."""
    return np.maximum(0, (np.asarray(lengths, np.int64) - size) // every + 1)


class WindowBatching(Batching):
    """All windows of a look-back and a horizon.

    Args:
        options: of the task
        context: steps before an origin that evaluation reads
    """

    def __init__(self, options: ForecastingOptions, context: int):
        super().__init__(options)
        self.size = options.steps_back + options.horizon
        self.evaluated, self.every = context + options.horizon, options.every

    def examples(self, lengths: Lengths) -> int:
        return int(count(lengths, self.size).sum())

    def units(self, lengths: Lengths) -> int:
        return self.examples(lengths) * self.size

    def training(self, lengths: Lengths, epoch: int) -> Batches:
        random = np.random.default_rng([self.options.seed, epoch])
        return Windows(lengths, self.size, self.options.batch_size, random=random)

    def evaluation(self, lengths: Lengths) -> Batches:
        return Windows(lengths, self.evaluated, self.rows, self.every)


class Lazy:
    """A lazy array `(L, C)`, or `(L,)`: numbers that are read and scaled when they are indexed.

    Args:
        parts: give a stretch of some of the columns each
        length: L
        digest: identifies these numbers
        ndim: 1 for a single column as `(L,)`
    """

    def __init__(self, parts: Sequence[Part], length: int, digest: str, ndim: int):
        self.parts = parts
        self.length = length
        self.digest = digest
        self.ndim = ndim

    def __len__(self) -> int:
        return self.length

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    def __getitem__(self, place: slice) -> np.ndarray:
        start, stop, _ = place.indices(self.length)
        found = np.concatenate([part(start, max(start, stop)) for part in self.parts], 1).astype(np.float32)
        return found[:, 0] if self.ndim == 1 else found

    def tobytes(self) -> bytes:
        """Return what identifies these numbers."""
        return self.digest.encode()


def field(parts: Sequence[Part], length: int, digest: str, ndim: int = 2) -> np.ndarray:
    """Return an array of parts, `(L, C)` or `(L,)`; a lazy one if they are on disk, with a digest."""
    lazy = Lazy(parts, length, digest, ndim)
    return cast(np.ndarray, lazy) if digest else lazy[:]


class EncodedSeries(list[Encoded]):
    """Encoded series, with the series that they were made of.

    Attributes:
        examples: the series
    """

    def __init__(self, encoded: Sequence[Encoded], examples: Sequence[Series]):
        super().__init__(encoded)
        self.examples = list(examples)


def naive_forecasts(values: Tensor, horizon: int, season: int) -> tuple[Tensor, Tensor]:
    """Return the last value before the horizon, and those a season before, `(N, H)` each, of windows `(N, L)`.

    Example:
        >>> [each.tolist() for each in naive_forecasts(torch.tensor([[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]]), 3, 2)]
        [[[3.0, 3.0, 3.0]], [[2.0, 3.0, 2.0]]]
    """
    present = values.shape[1] - horizon
    before = present - season + torch.arange(horizon, device=values.device) % season
    return values[:, present - 1 : present].expand(-1, horizon), values[:, before]
