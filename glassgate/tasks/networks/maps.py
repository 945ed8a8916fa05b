"""Maps of texts and series to outputs, which the network corrects. They are fitted by ridge regression before training.

`ridge` solves the regressions.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from glassgate.tasks.data.batches import move
from glassgate.tasks.networks.encoder import step_mask
from glassgate.tasks.networks.ridge import MAX_EXAMPLES, Ridge, ridge

MAX_TOKEN_WEIGHTS = 2**21
"""The maximum number of weights of `TokenScores`; a network that would need more has no map."""
_MAX_WEIGHTS = 2**14  # of a linear map that is fitted
_MAX_VALUES = 2**20  # of all examples to which a linear map is fitted
_ROWS = 256  # texts of which the features are computed at once
_MAX_STORED_VALUES = 2**16  # of the training series that a map with a kernel contains
_PARTS = (2**16, 32)  # whose means a kernel compares: as many as possible, or few
_RATES = tuple(4.0**power for power in range(-2, 3))  # of the kernel, times the median distance of two series
_SCALE = 10.0  # weights begin at zero and move by about the learning rate per step, which is slow without a factor


class TokenScores(nn.Module):
    """A linear map of the tf-idf of a text to K outputs, as the sum of a part for each token. Initially zero.

    Args:
        rarity: the inverse document frequency of each token, `(V,)`; 0 for padding
        num_outputs: K
    """

    rarity: Tensor

    def __init__(self, rarity: Tensor, num_outputs: int):
        super().__init__()
        self.register_buffer("rarity", rarity, persistent=False)
        self.weight = nn.Parameter(torch.zeros(len(rarity), num_outputs))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the part of each token, `(N, L, K)`, from tokens, `(N, L)`."""
        return F.embedding(tokens, self.weight) * self._factors(tokens)[..., None]

    def features(self, tokens: Tensor) -> Tensor:
        """Return the values by which the output depends on each row of the weights, `(N, V)`."""
        zeros = self.rarity.new_zeros(len(tokens), len(self.rarity))
        return zeros.scatter_add(1, tokens, self._factors(tokens))

    def table(self) -> Tensor:
        """Return the part of each token before the division by the norm of the rarities of a text, `(V, K)`."""
        return self.weight.detach() * (_SCALE * self.rarity[:, None])

    def _factors(self, tokens: Tensor) -> Tensor:
        rarity = self.rarity[tokens]
        norm = rarity.square().sum(1, keepdim=True).sqrt().clamp(min=1.0)  # each token is at least 1; no tokens give 0
        return _SCALE * rarity / norm


class StepScores(nn.Module):
    """A fixed linear map of a series to K outputs, as the sum of a part for each step.

    Steps beyond those of the training series have no part.

    Args:
        weight: `(L, C, K)`
        bias: `(L, K)`
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor):
        super().__init__()
        self.register_buffer("weight", F.pad(weight, (0, 0, 0, 0, 0, 1)), persistent=False)  # zeros for further steps
        self.register_buffer("bias", F.pad(bias, (0, 0, 0, 1)), persistent=False)

    def forward(self, steps: Tensor, lengths: Tensor) -> Tensor:
        """Return the part of each step, `(N, L, K)`, of padded series, `(N, L, C)`, of lengths `(N,)`."""
        index = torch.arange(steps.shape[1], device=steps.device).clamp(max=len(self.weight) - 1)
        parts = (steps[..., None] * self.weight[index]).sum(2) + self.bias[index]
        return parts * step_mask(lengths, steps)[..., None]


class KernelScores(nn.Module):
    """A fixed regression with a Gaussian kernel, which compares the `kernel_features` of series.

    The output is the sum of the coefficients of all training series, each multiplied by exp(-rate * distance). The
    distance is the mean squared difference of the features. Large coefficients may cancel in this sum, so it is
    computed in float64, except on Apple's GPUs, which lack it.

    Args:
        support: the features of S training series, `(S, F, C)`
        coefficients: `(S, K)`
        rate: the rate
        differences: whether the features are the differences of the means of adjacent parts, or these means
    """

    support: Tensor
    coefficients: Tensor

    def __init__(self, support: Tensor, coefficients: Tensor, rate: float, differences: bool):
        super().__init__()
        self.register_buffer("support", support, persistent=False)
        self.register_buffer("coefficients", coefficients, persistent=False)
        self.rate, self.differences = rate, differences

    def forward(self, steps: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs, `(N, 1, K)`, for padded series, `(N, L, C)`, of lengths `(N,)`."""
        exact = torch.float32 if steps.device.type == "mps" else torch.float64
        found = kernel_features(steps.to(exact), lengths, self.support.shape[1], self.differences)
        distances = (found[:, None] - self.support.to(exact)).square().mean((2, 3))
        outputs = (-self.rate * distances).exp() @ self.coefficients.to(exact)
        return outputs[:, None].to(steps.dtype)


InputMap = TokenScores | StepScores | KernelScores


def kernel_features(steps: Tensor, lengths: Tensor, count: int, differences: bool) -> Tensor:
    """Return `count` means of equal parts of each series, or differences of adjacent ones, `(N, count, C)`."""
    means = part_means(steps, lengths, count + differences)
    return means[:, 1:] - means[:, :-1] if differences else means


def part_means(steps: Tensor, lengths: Tensor, parts: int) -> Tensor:
    """Divide padded series, `(N, L, C)`, into P equal parts and return the mean of each part, `(N, P, C)`.

    A step at the border of two parts belongs to both, in proportion. If there are as many parts as steps, their means
    are the steps.
    """
    lengths = move(lengths, steps.device)[:, None]
    borders = torch.arange(parts + 1, device=steps.device) * lengths  # in units of 1 / P steps
    before = torch.div(borders, parts, rounding_mode="floor")
    fractions = (borders - before * parts).to(steps.dtype) / parts
    padded = F.pad(steps, (0, 0, 0, 1))
    sums = F.pad(steps.cumsum(1), (0, 0, 1, 0))
    index = before[..., None].expand(-1, -1, steps.shape[2])
    integrals = sums.gather(1, index) + fractions[..., None] * padded.gather(1, index)
    return (integrals[:, 1:] - integrals[:, :-1]) * (parts / lengths[..., None])


class Fitted(NamedTuple):
    """A fitted map: "ridge" (linear) or "kernel", its regression, and its arguments for coefficients as JSON values."""

    name: str
    regression: Ridge
    arguments: Callable[[np.ndarray], list[Any]]


def fit_texts(texts: Sequence[np.ndarray], scores: TokenScores, targets: np.ndarray) -> Fitted | None:
    """Return the weights of `scores` with the smallest error for texts that are left out; None for large data.

    Args:
        texts: the tokens of each text, `(L,)`; the result is None for fewer than three
        scores: the map of which the weights are fitted
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


def fit_estimator(
    estimator: Any, texts: Sequence[np.ndarray], scores: TokenScores, targets: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Fit a linear estimator of scikit-learn to the tf-idf of texts.

    Args:
        estimator: a classifier or a regression
        texts: the tokens of each text, `(L,)`
        scores: the map for which the weights are fitted
        targets: labels, `(N,)`, of which each occurs, or numbers, `(N, K)`

    Returns:
        a bias, `(K,)`, and the weights of `scores`, `(V, K)`
    """
    from scipy.sparse import csr_matrix, vstack

    parts = (texts[start : start + _ROWS] for start in range(0, len(texts), _ROWS))
    padded = (pad_sequence([torch.from_numpy(each) for each in part], batch_first=True) for part in parts)
    features = vstack([csr_matrix(scores.features(tokens).numpy()) for tokens in padded])
    estimator.fit(features / _SCALE, targets)
    outputs = np.column_stack([estimator.intercept_, estimator.coef_ / _SCALE])
    if len(outputs) < scores.weight.shape[1]:  # of two labels, one has the scores
        outputs = np.concatenate([-outputs, outputs]) / 2
    bias_and_weight = torch.from_numpy(outputs.T).to(scores.weight)
    return bias_and_weight[0], bias_and_weight[1:]


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
    most = min(max(map(len, series)), _MAX_STORED_VALUES // (len(series) * series[0].shape[1]))
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
