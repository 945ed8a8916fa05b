"""The windows of series: their batches, the steps that are held out, and the naive forecasts in them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.data.batching import Batches, Batching, Cuts, Lengths
from glassgate.tasks.data.held_out import LastSteps, held_out_size
from glassgate.tasks.errors import OptionError
from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.forecasting.series import Series
from glassgate.tasks.forecasting.statistics import season_of


class Windows(Cuts):
    """All windows of `size` steps of series with these lengths, in batches: every `every`th one, in order or shuffled.

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

    In evaluation, `context` steps are before the horizon: the look-back, or more if the seasonal naive forecast reads
    more.
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


@dataclass(frozen=True)
class LastHorizons(LastSteps[Series]):
    """Holds out the last steps of each series. By default, dev and test each get a fraction, but at least one horizon.

    The dev and the test part begin with the steps that their first forecast reads. These steps also belong to the
    previous part.
    """

    options: ForecastingOptions

    def sizes(self, example: Series, fraction: float) -> tuple[int, int, int]:
        options = self.options
        back, horizon = options.steps_back, options.horizon
        default = max(horizon, held_out_size(len(example), fraction)) if fraction else 0
        dev, test = options.dev_steps or default, options.test_steps or default
        train = options.train_steps or len(example) - dev - test
        if any(0 < steps < horizon for steps in (dev, test)) or train < back + horizon:
            raise OptionError(
                f"horizon: expected at least {back + horizon} training steps (look-back + horizon), {horizon} dev "
                f"steps and {horizon} test steps, got {max(0, train)} training, {dev} dev and {test} test steps in "
                f"series {example.name!r} of {len(example)} steps; choose a shorter --horizon or --look-back"
            )
        check_length(example, train + dev + test, options)
        return train, dev, test

    def overlap(self, examples: Sequence[Series], train_sizes: Sequence[int]) -> int:
        """Return the number of steps before an origin that the model or the seasonal naive forecast reads."""
        return max(self.options.steps_back, season_of(examples, self.options, min(train_sizes)))


def check_length(series: Series, min_steps: int, options: ForecastingOptions, reason: str = "") -> None:
    """Check that a series has enough steps; `reason` explains why more than look-back + horizon are required."""
    if len(series) < min_steps:
        raise series.fault(
            f"expected {min_steps} steps or more for a look-back of {options.steps_back} and a horizon of "
            f"{options.horizon}, got {len(series)}{reason}; give a longer series, or choose a shorter "
            "--horizon or --look-back"
        )


def naive_forecasts(values: Tensor, horizon: int, season: int) -> tuple[Tensor, Tensor]:
    """Return forecasts that repeat the last value, and the last season, before the horizon, `(N, horizon)` each.

    The last steps of the windows `values`, `(N, L)`, are the horizon.

    Example:
        >>> [each.tolist() for each in naive_forecasts(torch.tensor([[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]]), 3, 2)]
        [[[3.0, 3.0, 3.0]], [[2.0, 3.0, 2.0]]]
    """
    first = values.shape[1] - horizon
    repeated_steps = first - season + torch.arange(horizon, device=values.device) % season
    return values[:, first - 1 : first].expand(-1, horizon), values[:, repeated_steps]
