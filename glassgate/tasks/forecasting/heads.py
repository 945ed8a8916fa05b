"""Output heads of forecasting: a value, quantiles or a distribution per step, with loss, quantiles and samples."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from statistics import NormalDist

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, distributions

_LEAST = 1e-6  # minimum scale


class Draws:
    """Random numbers for sampled paths. All rows use the same ones, so the samples of a row do not depend on the batch.

    Args:
        rows: the number of rows
        seed: the seed of the random numbers
        device: the device of the results
    """

    def __init__(self, rows: int, seed: int, device: torch.device):
        self._shared = Generator(device).manual_seed(seed)
        self._each = [Generator(device).manual_seed(seed) for _ in range(rows)]

    def normal(self, like: Tensor) -> Tensor:
        """Return samples of the standard normal distribution, `(N, ...)`."""
        drawn = torch.randn(like.shape[1:], generator=self._shared, device=like.device, dtype=like.dtype)
        return drawn.expand_as(like)

    def gamma(self, shape: Tensor) -> Tensor:
        """Return samples of gamma distributions with these shapes, `(N, ...)`."""
        rows = zip(shape.contiguous(), self._each, strict=True)
        return torch.stack([torch._standard_gamma(row, generator=random) for row, random in rows])

    def poisson(self, rate: Tensor) -> Tensor:
        """Return samples of Poisson distributions with these rates, `(N, ...)`."""
        return torch.stack([torch.poisson(row, generator=each) for row, each in zip(rate, self._each, strict=True)])


class Head(ABC):
    """Maps raw outputs of a network to parameters per step, and these to losses, forecasts and samples.

    Values are in units of the standard deviation of the training part, except that the parameters of counts are in
    units of the data.

    Attributes:
        size: the number of raw outputs per step
        has_quantiles: whether the head has quantiles
        draws: whether the head can be sampled
    """

    size = 1
    has_quantiles = True
    draws = True

    @abstractmethod
    def parameters(self, raw: Tensor, center: Tensor, spread: Tensor, scale: Tensor) -> Tensor:
        """Return parameters, `(..., size)`.

        Args:
            raw: `(..., size)`
            center, spread: the offset and the divisor of the window, `(...)`
            scale: the divisor of the series, `(...)`
        """

    @abstractmethod
    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        """Return the loss of each step, `(...)`, for targets `(...)`."""

    @abstractmethod
    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        """Return the point forecast of each step, `(...)`."""

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor | None:
        """Return quantiles, `(..., Q)`; None for a distribution without a formula for them."""
        return None

    def sample(self, parameters: Tensor, scale: Tensor, draws: Draws) -> Tensor:
        """Return a sample for each step of each path, `(N, paths, S)`, for parameters `(N, paths, S, size)`."""
        raise NotImplementedError


class Point(Head):
    """A point forecast, trained with the squared error, the absolute error or the Huber loss.

    Args:
        kind: "mse", "mae" or "huber"
    """

    has_quantiles = False
    draws = False

    def __init__(self, kind: str):
        kinds: dict[str, Callable[..., Tensor]] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}
        self.error = kinds[kind]

    def parameters(self, raw: Tensor, center: Tensor, spread: Tensor, scale: Tensor) -> Tensor:
        return raw * spread[..., None] + center[..., None]

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        return self.error(parameters[..., 0], target, reduction="none")

    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        return parameters[..., 0]


class Quantiles(Head):
    """Quantiles, trained with the pinball loss; the point forecast is the quantile closest to the median.

    Args:
        levels: the levels of the quantiles, ascending
    """

    draws = False

    def __init__(self, levels: Sequence[float]):
        self.levels = list(levels)
        self.size = len(self.levels)

    def parameters(self, raw: Tensor, center: Tensor, spread: Tensor, scale: Tensor) -> Tensor:
        return raw * spread[..., None] + center[..., None]

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        return 2 * pinball(parameters, target, self.levels).mean(-1)

    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        middle = min(range(self.size), key=lambda k: abs(self.levels[k] - 0.5))
        return parameters.sort(-1).values[..., middle]

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor:
        return parameters.sort(-1).values


class Gaussian(Head):
    """A normal distribution: mean and standard deviation."""

    size = 2

    def parameters(self, raw: Tensor, center: Tensor, spread: Tensor, scale: Tensor) -> Tensor:
        mean = raw[..., 0] * spread + center
        return torch.stack([mean, (F.softplus(raw[..., 1]) + _LEAST) * spread], -1)

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        mean, deviation = parameters.unbind(-1)
        return -distributions.Normal(mean, deviation, validate_args=False).log_prob(target)

    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        return parameters[..., 0]

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor:
        mean, deviation = parameters[..., :1], parameters[..., 1:]
        away = mean.new_tensor([NormalDist().inv_cdf(level) for level in levels])
        return mean + deviation * away

    def sample(self, parameters: Tensor, scale: Tensor, draws: Draws) -> Tensor:
        mean, deviation = parameters.unbind(-1)
        return mean + deviation * draws.normal(mean)


class StudentT(Head):
    """Student's t-distribution, which has heavier tails: degrees of freedom (above 2), location and scale."""

    size = 3

    def parameters(self, raw: Tensor, center: Tensor, spread: Tensor, scale: Tensor) -> Tensor:
        freedom = 2 + F.softplus(raw[..., 0]) + _LEAST
        return torch.stack([freedom, raw[..., 1] * spread + center, (F.softplus(raw[..., 2]) + _LEAST) * spread], -1)

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        freedom, place, width = parameters.unbind(-1)
        return -distributions.StudentT(freedom, place, width, validate_args=False).log_prob(target)

    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        return parameters[..., 1]

    def sample(self, parameters: Tensor, scale: Tensor, draws: Draws) -> Tensor:
        freedom, place, width = parameters.unbind(-1)
        return place + width * draws.normal(place) * (freedom / 2 / draws.gamma(freedom / 2)).sqrt()


class NegativeBinomial(Head):
    """Counts with a mean and a shape, and variance mean + shape mean^2, as in DeepAR (Salinas et al. 2020)."""

    size = 2

    def parameters(self, raw: Tensor, center: Tensor, spread: Tensor, scale: Tensor) -> Tensor:
        mean = (F.softplus(raw[..., 0]) + _LEAST) * scale
        return torch.stack([mean, (F.softplus(raw[..., 1]) + _LEAST) / scale.sqrt()], -1)

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        mean, shape = parameters.unbind(-1)
        counts = distributions.NegativeBinomial(1 / shape, logits=(shape * mean).log(), validate_args=False)
        return -counts.log_prob((target * scale).round())

    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        return parameters[..., 0] / scale

    def sample(self, parameters: Tensor, scale: Tensor, draws: Draws) -> Tensor:
        mean, shape = parameters.unbind(-1)
        return draws.poisson(draws.gamma(1 / shape) * shape * mean) / scale


def head(name: str, levels: Sequence[float]) -> Head:
    """Return a head by its name."""
    if name == "quantiles":
        return Quantiles(levels)
    kinds: dict[str, type[Head]] = {
        "gaussian": Gaussian,
        "student-t": StudentT,
        "negative-binomial": NegativeBinomial,
    }
    return kinds[name]() if name in kinds else Point(name)


def pinball(quantiles: Tensor, target: Tensor, levels: Sequence[float]) -> Tensor:
    """Return the pinball loss, `(..., Q)`, of quantiles, `(..., Q)`, for targets, `(...)`.

    Example:
        >>> pinball(torch.tensor([[1.0, 3.0]]), torch.tensor([2.0]), [0.1, 0.9])
        tensor([[0.1000, 0.1000]])
    """
    away = target[..., None] - quantiles
    at = torch.tensor(levels, dtype=quantiles.dtype, device=quantiles.device)
    return torch.maximum(at * away, (at - 1) * away)
