"""Output heads of forecasting: a value, quantiles or a distribution per step, with loss, quantiles and samples."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, distributions
from torch.distributions import Gamma

from glassgate.tasks.data.batches import move

_MIN_SCALE = 1e-6


class SharedDraws:
    """Random numbers for sampled paths. All rows get the same numbers, so a row's samples do not depend on other rows.

    The parameters of the distributions are `(N, ...)`, for N = `rows`.
    """

    def __init__(self, rows: int, seed: int, device: torch.device):
        self._shared_generator = Generator(device).manual_seed(seed)
        self._row_generators = [Generator(device).manual_seed(seed) for _ in range(rows)]

    def normal(self, like: Tensor) -> Tensor:
        """Return samples of the standard normal distribution, in the shape and dtype of `like`."""
        drawn = torch.randn(like.shape[1:], generator=self._shared_generator, device=like.device, dtype=like.dtype)
        return drawn.expand_as(like)

    def gamma(self, shape: Tensor) -> Tensor:
        return self._by_row(_standard_gamma, shape)

    def poisson(self, rate: Tensor) -> Tensor:
        return self._by_row(torch.poisson, rate)

    def _by_row(self, draw: Callable[..., Tensor], parameters: Tensor) -> Tensor:
        rows = zip(parameters, self._row_generators, strict=True)
        return torch.stack([draw(row, generator=generator) for row, generator in rows])


class Head(ABC):
    """Maps raw outputs of a network to parameters per step, and the parameters to losses, forecasts and samples.

    Values and parameters are in units of the standard deviation of the training data, `scale`. The parameters of
    `NegativeBinomial` are in units of the data, because it is a distribution of whole numbers.

    Attributes:
        size: the number of raw outputs per step
        has_quantiles: whether forecasts have quantiles, from a formula or from samples
        can_sample: whether `sample` is implemented
        locations: the indices of the raw outputs that a shift of the forecast is added to
    """

    size = 1
    has_quantiles = True
    can_sample = True
    locations: Sequence[int] = (0,)

    def spread(self, deviation: Tensor) -> Tensor:
        """Return the raw outputs, `(H, size)`, of a forecast of 0 whose errors have these deviations, `(H,)`."""
        return torch.zeros(len(deviation), self.size)

    def parameters(self, raw: Tensor, window_shift: Tensor, window_scale: Tensor, scale: Tensor) -> Tensor:
        """Return the parameters of each step for raw outputs, `(..., size)`; here, with the normalisation reversed.

        `window_shift` and `window_scale` are the offset and the divisor by which the window is normalised, `(...)`.
        """
        return raw * window_scale[..., None] + window_shift[..., None]

    @abstractmethod
    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        """Return the loss of each step, `(...)`, for targets `(...)`."""

    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        """Return the point forecast of each step, `(...)`."""
        return parameters[..., 0]

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor | None:
        """Return quantiles, `(..., Q)`; None for a distribution without a formula for them."""
        return None

    def sample(self, parameters: Tensor, scale: Tensor, draws: SharedDraws) -> Tensor:
        """Return a sample for each step of each path, `(N, paths, steps)`, for parameters `(N, paths, steps, size)`."""
        raise NotImplementedError


class Point(Head):
    """A point forecast, trained with the squared error, the absolute error or the Huber loss."""

    has_quantiles = can_sample = False

    def __init__(self, error: Callable[..., Tensor]):
        self.error = error

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        return self.error(parameters[..., 0], target, reduction="none")


class Quantiles(Head):
    """Quantiles, trained with the pinball loss; the point forecast is the quantile closest to the median."""

    can_sample = False

    def __init__(self, levels: Sequence[float]):
        self.levels = list(levels)
        self.size = len(self.levels)
        self.locations = range(self.size)

    def spread(self, deviation: Tensor) -> Tensor:
        return deviation[:, None] * torch.tensor(normal_quantiles(self.levels))

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        return 2 * pinball(parameters, target, self.levels).mean(-1)

    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        return parameters.sort(-1).values[..., median_index(self.levels)]

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor:
        return parameters.sort(-1).values


class Gaussian(Head):
    """A normal distribution: mean and standard deviation."""

    size = 2

    def spread(self, deviation: Tensor) -> Tensor:
        return torch.stack([torch.zeros_like(deviation), _inverse_softplus(deviation)], -1)

    def parameters(self, raw: Tensor, window_shift: Tensor, window_scale: Tensor, scale: Tensor) -> Tensor:
        return torch.stack([raw[..., 0] * window_scale + window_shift, _positive(raw[..., 1]) * window_scale], -1)

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        mean, deviation = parameters.unbind(-1)
        return -distributions.Normal(mean, deviation, validate_args=False).log_prob(target)

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor:
        mean, deviation = parameters[..., :1], parameters[..., 1:]
        z_scores = torch.tensor(normal_quantiles(levels), dtype=mean.dtype)
        return mean + deviation * move(z_scores, mean.device)

    def sample(self, parameters: Tensor, scale: Tensor, draws: SharedDraws) -> Tensor:
        mean, deviation = parameters.unbind(-1)
        return mean + deviation * draws.normal(mean)


class StudentT(Head):
    """Student's t-distribution, with heavy tails: degrees of freedom (above 2), location and width."""

    size = 3
    locations = (1,)

    def spread(self, deviation: Tensor) -> Tensor:
        degrees = torch.full_like(deviation, 3.0)  # above 2; with few degrees, the tails are heavy
        width = deviation * (degrees / (2 + degrees)).sqrt()
        return torch.stack([_inverse_softplus(degrees), torch.zeros_like(width), _inverse_softplus(width)], -1)

    def parameters(self, raw: Tensor, window_shift: Tensor, window_scale: Tensor, scale: Tensor) -> Tensor:
        degrees = 2 + F.softplus(raw[..., 0]) + _MIN_SCALE  # above 2, so that the variance is finite
        location = raw[..., 1] * window_scale + window_shift
        return torch.stack([degrees, location, _positive(raw[..., 2]) * window_scale], -1)

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        degrees, location, width = parameters.unbind(-1)
        # The formula is written out, because StudentT of torch copies a number to the GPU and waits for the copy.
        half = (degrees + 1) / 2
        normaliser = width.log() + (math.pi * degrees).log() / 2 + (degrees / 2).lgamma() - half.lgamma()
        return normaliser + half * (((target - location) / width) ** 2 / degrees).log1p()

    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        return parameters[..., 1]

    def sample(self, parameters: Tensor, scale: Tensor, draws: SharedDraws) -> Tensor:
        degrees, location, width = parameters.unbind(-1)
        return location + width * draws.normal(location) * (degrees / 2 / draws.gamma(degrees / 2)).sqrt()


class NegativeBinomial(Head):
    """Counts with a mean and a shape, and variance mean + shape * mean^2.

    As in DeepAR (Salinas et al. 2020, section 3.3), the mean is multiplied by the scale of the series, and the shape is
    divided by the square root of the scale.
    """

    size = 2
    locations = ()  # the mean is not linear in the raw output

    def parameters(self, raw: Tensor, window_shift: Tensor, window_scale: Tensor, scale: Tensor) -> Tensor:
        return torch.stack([_positive(raw[..., 0]) * scale, _positive(raw[..., 1]) / scale.sqrt()], -1)

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        mean, shape = parameters.unbind(-1)
        counts = distributions.NegativeBinomial(1 / shape, logits=(shape * mean).log(), validate_args=False)
        return -counts.log_prob((target * scale).round())

    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        return parameters[..., 0] / scale

    def sample(self, parameters: Tensor, scale: Tensor, draws: SharedDraws) -> Tensor:
        mean, shape = parameters.unbind(-1)
        return draws.poisson(draws.gamma(1 / shape) * shape * mean) / scale


def make_head(name: str, levels: Sequence[float]) -> Head:
    """Return the head that the option `head` names."""
    heads: dict[str, Callable[[], Head]] = {
        "mse": lambda: Point(F.mse_loss),
        "mae": lambda: Point(F.l1_loss),
        "huber": lambda: Point(F.huber_loss),
        "quantiles": lambda: Quantiles(levels),
        "gaussian": Gaussian,
        "student-t": StudentT,
        "negative-binomial": NegativeBinomial,
    }
    return heads[name]()


def median_index(levels: Sequence[float]) -> int:
    """Return the index of the level closest to the median; 0 without levels."""
    return min(range(len(levels)), key=lambda k: abs(levels[k] - 0.5), default=0)


def normal_quantiles(levels: Sequence[float]) -> list[float]:
    """Return the quantiles of the standard normal distribution at these levels."""
    return [NormalDist().inv_cdf(level) for level in levels]


def pinball(quantiles: Tensor, target: Tensor, levels: Sequence[float]) -> Tensor:
    """Return the pinball loss, `(..., Q)`, of quantiles, `(..., Q)`, for targets, `(...)`.

    Example:
        >>> pinball(torch.tensor([[1.0, 3.0]]), torch.tensor([2.0]), [0.1, 0.9])
        tensor([[0.1000, 0.1000]])
    """
    errors = target[..., None] - quantiles
    weights = move(torch.tensor(levels, dtype=quantiles.dtype), quantiles.device)
    return torch.maximum(weights * errors, (weights - 1) * errors)


def _positive(raw: Tensor) -> Tensor:
    """A standard deviation or a similar parameter, which a softplus alone could make zero."""
    return F.softplus(raw) + _MIN_SCALE


def _inverse_softplus(values: Tensor) -> Tensor:
    """The numbers whose softplus is `values`, which are positive."""
    values = values.clamp(min=_MIN_SCALE)
    return values + (-torch.expm1(-values)).log()


def _standard_gamma(shape: Tensor, generator: Generator) -> Tensor:
    """Samples of gamma distributions.

    The distribution of torch draws from the global generator, so this generator lends it its state.
    """
    on_gpu = shape.device.type == "cuda"
    device: Any = torch.cuda if on_gpu else torch
    with torch.random.fork_rng([shape.device] if on_gpu else []):
        device.set_rng_state(generator.get_state())
        drawn: Tensor = Gamma(shape, torch.ones_like(shape), validate_args=False).sample()
        generator.set_state(device.get_rng_state())
    return drawn
