"""Batches of windows of time series. The encoded series are in memory, or are read from disk when they are sliced."""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.data.batching import Batches, Batching, Cuts, Lengths
from glassgate.tasks.data.store import LazyArray
from glassgate.tasks.forecasting.options import ForecastingOptions

ColumnReader = Callable[[int, int], np.ndarray]
"""A function of `start` and `stop` that returns these steps of some columns, `(stop - start, C)`."""


class Windows(Cuts):
    """All windows of `size` steps, in batches.

    Args:
        lengths: the number of steps of each series
        size: the number of steps of a window
        batch_size: the number of windows in a batch
        every: the stride, in steps from the start of a window to the start of the next one
        random: shuffles the windows; if None, they are in the order of the series

    Example:
        >>> [[(piece.index, piece.start) for piece in batch] for batch in Windows([4, 3, 2], 3, 2)]
        [[(0, 0), (0, 1)], [(1, 0)]]
    """

    def __init__(
        self, lengths: Lengths, size: int, batch_size: int, every: int = 1, random: np.random.Generator | None = None
    ):
        counts = window_counts(lengths, size, every)
        dtype = np.int32 if np.sum(lengths, dtype=np.int64) < 2**31 else np.int64
        self.index = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        first = (np.cumsum(counts) - counts).astype(dtype)
        self.start = (np.arange(len(self.index), dtype=dtype) - first[self.index]) * dtype(every)
        self.stop = self.start + dtype(size)
        if random is not None:
            self.reorder(random.permutation(np.arange(len(self.index), dtype=dtype)))
        starts = np.arange(0, len(self.index), batch_size)
        self.bounds = np.stack([starts, np.minimum(starts + batch_size, len(self.index))], 1)


def window_counts(lengths: Lengths, size: int, every: int = 1) -> np.ndarray:
    """Return the number of windows of each series, `(N,)`."""
    return np.maximum(0, (np.asarray(lengths, np.int64) - size) // every + 1)


class WindowBatching(Batching):
    """Batches of windows that consist of a look-back and a horizon.

    Args:
        options: the options of the task
        context: the number of steps before the horizon in the windows of evaluation. It is at least the look-back, and
            longer if the seasonal naive forecast reads more steps
    """

    def __init__(self, options: ForecastingOptions, context: int):
        super().__init__(options)
        self.training_size = options.steps_back + options.horizon
        self.evaluation_size, self.every = context + options.horizon, options.every

    def count_examples(self, lengths: Lengths) -> int:
        return int(window_counts(lengths, self.training_size).sum())

    def count_units(self, lengths: Lengths) -> int:
        return self.count_examples(lengths) * self.training_size

    def training(self, lengths: Lengths, epoch: int) -> Batches:
        random = np.random.default_rng([self.options.seed, epoch])
        return Windows(lengths, self.training_size, self.options.batch_size, random=random)

    def evaluation(self, lengths: Lengths) -> Batches:
        return Windows(lengths, self.evaluation_size, self.rows, self.every)


def array_of(readers: Sequence[ColumnReader], length: int, digest: str, ndim: int = 2) -> np.ndarray:
    """Return the columns of all readers as one array of float32, `(L, C)`, or `(L,)` if `ndim` is 1.

    Args:
        readers: the readers of the columns
        length: L
        digest: identifies a series on disk. The result is then a `LazyArray`, which reads values when it is sliced. If
            empty, all values are read now
        ndim: 2, or 1 for a single column
    """

    def read(start: int, stop: int) -> np.ndarray:
        values = np.concatenate([each(start, stop) for each in readers], 1).astype(np.float32)
        return values[:, 0] if ndim == 1 else values

    return cast(np.ndarray, LazyArray(read, length, digest.encode())) if digest else read(0, length)


def naive_forecasts(values: Tensor, horizon: int, season: int) -> tuple[Tensor, Tensor]:
    """Return the naive and the seasonal naive forecast, `(N, H)` each.

    The naive forecast repeats the last value before the horizon. The seasonal naive forecast repeats the last season.

    Args:
        values: windows whose last H steps are the horizon, `(N, L)`
        horizon: H
        season: the number of steps of a season

    Example:
        >>> [each.tolist() for each in naive_forecasts(torch.tensor([[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]]), 3, 2)]
        [[[3.0, 3.0, 3.0]], [[2.0, 3.0, 2.0]]]
    """
    first = values.shape[1] - horizon
    repeated_steps = first - season + torch.arange(horizon, device=values.device) % season
    return values[:, first - 1 : first].expand(-1, horizon), values[:, repeated_steps]
