"""Maps that are fitted by ridge regression before training, and whose outputs the network corrects.

`ridge` solves the regressions. `labelled.TokenScores`, `step_scores` and `kernel_scores` contain the maps.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from glassgate.tasks.networks.kernel_scores import kernel_features
from glassgate.tasks.networks.labelled import TokenScores
from glassgate.tasks.networks.ridge import MAX_EXAMPLES, Ridge, ridge

_MAX_WEIGHTS = 2**14  # of a linear map
_MAX_VALUES = 2**20  # of all examples to which a linear map is fitted
_MAX_STORED_VALUES = 2**16  # of the training series that a map with a kernel contains
_PARTS = (2**16, 32)  # whose means a kernel compares: as many as possible, or few
_RATES = tuple(4.0**power for power in range(-2, 3))  # of the kernel, times the median distance of two series


class Fitted(NamedTuple):
    """A fitted map.

    Attributes:
        name: "ridge" for a linear map, "kernel" for one with a kernel
        regression: the ridge regression
        arguments: returns the arguments of the map, as JSON values, for the coefficients of the regression
    """

    name: str
    regression: Ridge
    arguments: Callable[[np.ndarray], list[Any]]


def fit_texts(texts: Sequence[np.ndarray], scores: TokenScores, targets: np.ndarray) -> Fitted | None:
    """Return the linear map of the tf-idf of texts with the smallest error for texts that are left out.

    Args:
        texts: the tokens of each text, `(L,)`; the result is None for fewer than three, and for large data
        scores: the map whose weights are fitted
        targets: numbers whose means are 0, `(N, K)`
    """
    too_large = len(texts) * len(scores.rarity) > _MAX_VALUES or scores.weight.numel() > _MAX_WEIGHTS
    if too_large or not 3 <= len(texts) <= MAX_EXAMPLES:
        return None
    tokens = pad_sequence([torch.from_numpy(each) for each in texts], batch_first=True)
    features = scores.features(tokens).double().numpy()

    def arguments(coefficients: np.ndarray) -> list[Any]:
        return list((features.T @ coefficients).round(5).tolist())

    return Fitted("ridge", ridge(features @ features.T, targets), arguments)


def fit_series(series: Sequence[np.ndarray], targets: np.ndarray) -> Fitted | None:
    """Return the map of series to targets with the smallest error for series that are left out; None without one.

    Args:
        series: standardised series, `(L, C)` each. The result is None for fewer than three. To more than `MAX_EXAMPLES`
            series, only a linear map is fitted
        targets: numbers whose means are 0, `(N, K)`
    """
    if len(series) < 3:
        return None
    candidates = [*_linear(series, targets), *_kernels(series, targets)]
    return min(candidates, key=lambda fitted: fitted.regression.error, default=None)


def _linear(series: Sequence[np.ndarray], targets: np.ndarray) -> Iterator[Fitted]:
    """Yield the linear map of the values of each step, if all series have the same shape.

    Each value is standardised over the series. A step's part is therefore zero for its mean values, and a missing step
    is treated as if it had these. Of many series, evenly spaced ones are read.
    """
    shape, size = series[0].shape, series[0].size
    if any(each.shape != shape for each in series) or size * targets.shape[1] > _MAX_WEIGHTS:
        return
    every = -(-len(series) // min(MAX_EXAMPLES, _MAX_VALUES // size))
    values = np.stack(series[::every]).reshape(-1, size).astype(np.float64)
    means, deviations = values.mean(0), values.std(0)
    factors = np.divide(1, deviations, out=np.zeros(size), where=np.ptp(values, 0) > 0)
    values = (values - means) * factors

    def arguments(coefficients: np.ndarray) -> list[Any]:
        weight = factors[:, None] * (values.T @ coefficients)
        bias = -(weight * means[:, None]).reshape(*shape, -1).sum(1)
        return [weight.reshape(*shape, -1).tolist(), bias.tolist()]

    # The constant `size` is the kernel of a constant value, which is thus penalised less than the others.
    yield Fitted("ridge", ridge(values @ values.T + size, targets[::every]), arguments)


def _kernels(series: Sequence[np.ndarray], targets: np.ndarray) -> Iterator[Fitted]:
    """Yield regressions with Gaussian kernels, of different rates and features, unless there are many series.

    Series of any length are compared, because they are divided into the same number of parts.
    """
    longest = max(map(len, series))
    most = min(longest, _MAX_STORED_VALUES // (len(series) * series[0].shape[1]))
    if len(series) > MAX_EXAMPLES or most == 0:
        return
    pairs = [(torch.from_numpy(x)[None].double(), torch.tensor([len(x)])) for x in series]
    for parts, differences in product({min(most, parts) for parts in _PARTS}, (False, True)):
        count = max(1, parts - differences)
        rows = [kernel_features(steps, length, count, differences) for steps, length in pairs]
        support = torch.cat(rows).numpy().round(4)  # a run stores these numbers as text
        flat = support.reshape(len(series), -1)
        squares = np.square(flat).sum(1)
        distances = (squares[:, None] + squares - 2 * flat @ flat.T).clip(0) / flat.shape[1]
        median = float(np.median(distances[np.triu_indices(len(series), 1)]))
        for rate in [factor / median for factor in _RATES] if median else ():
            arguments = partial(_kernel_arguments, support, rate, differences)
            yield Fitted("kernel", ridge(np.exp(-rate * distances), targets), arguments)


def _kernel_arguments(support: np.ndarray, rate: float, differences: bool, coefficients: np.ndarray) -> list[Any]:
    return [support.tolist(), coefficients.tolist(), rate, differences]
