"""The outputs for a step: a value, quantiles or a distribution; each with its loss, its quantiles and draws."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from statistics import NormalDist

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

_LEAST = 1e-6  # of a scale


class Draws:
    """Random numbers of paths, the same ones for each row, so that a row's draws depend on that row alone.

    Args:
        rows: their number
        seed: of the random numbers
        device: of the results
    """

    def __init__(self, rows: int, seed: int, device: torch.device):
        self._shared = Generator(device).manual_seed(seed)
        self._each = [Generator(device).manual_seed(seed) for _ in range(rows)]

    def normal(self, like: Tensor) -> Tensor:
        """Return normal numbers, `(N, ...)`."""
        drawn = torch.randn(like.shape[1:], generator=self._shared, device=like.device, dtype=like.dtype)
        return drawn.expand_as(like)

    def gamma(self, shape: Tensor) -> Tensor:
        """Return gamma numbers of a shape each, `(N, ...)`."""
        rows = zip(shape.contiguous(), self._each, strict=True)
        return torch.stack([torch._standard_gamma(row, generator=random) for row, random in rows])

    def poisson(self, rate: Tensor) -> Tensor:
        """Return counts of a rate each, `(N, ...)`."""
        return torch.stack([torch.poisson(row, generator=each) for row, each in zip(rate, self._each, strict=True)])


class Head(ABC):
    """From a network's numbers to parameters of a step, and what follows from them.

    All is in units of the training part's deviation, but for counts, whose parameters are in units of the data.

    Attributes:
        size: numbers that the network gives for a step
        has_quantiles: whether it says how sure it is
        draws: whether values can be drawn from it
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
        """Return the loss of each step, `(...)`, of targets `(...)`."""

    @abstractmethod
    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        """Return one value for each step, `(...)`."""

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor | None:
        """Return quantiles, `(..., Q)`, where there is a formula."""
        return None

    def sample(self, parameters: Tensor, scale: Tensor, draws: Draws) -> Tensor:
        """Draw a value for each step of each path, `(N, paths, S)`, of parameters `(N, paths, S, size)`."""
        raise NotImplementedError


class Point(Head):
    """A value, by the squared error, the absolute error, or Huber's, which is between them.

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
    """Quantiles, by the pinball loss; the value is the one nearest to the median.

    Args:
        levels: of the quantiles, rising
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
    """A normal distribution: mean and deviation."""

    size = 2

    def parameters(self, raw: Tensor, center: Tensor, spread: Tensor, scale: Tensor) -> Tensor:
        mean = raw[..., 0] * spread + center
        return torch.stack([mean, (F.softplus(raw[..., 1]) + _LEAST) * spread], -1)

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        mean, deviation = parameters.unbind(-1)
        return 0.5 * ((target - mean) / deviation) ** 2 + deviation.log() + 0.5 * math.log(2 * math.pi)

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
    """Student's distribution: freedom above 2, place and scale; it expects values far off more than a normal one."""

    size = 3

    def parameters(self, raw: Tensor, center: Tensor, spread: Tensor, scale: Tensor) -> Tensor:
        freedom = 2 + F.softplus(raw[..., 0]) + _LEAST
        return torch.stack([freedom, raw[..., 1] * spread + center, (F.softplus(raw[..., 2]) + _LEAST) * spread], -1)

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        freedom, place, width = parameters.unbind(-1)
        normal = (freedom / 2).lgamma() - ((freedom + 1) / 2).lgamma() + 0.5 * (freedom * math.pi).log() + width.log()
        return normal + (freedom + 1) / 2 * torch.log1p(((target - place) / width) ** 2 / freedom)

    def point(self, parameters: Tensor, scale: Tensor) -> Tensor:
        return parameters[..., 1]

    def sample(self, parameters: Tensor, scale: Tensor, draws: Draws) -> Tensor:
        freedom, place, width = parameters.unbind(-1)
        return place + width * draws.normal(place) * (freedom / 2 / draws.gamma(freedom / 2)).sqrt()


class NegativeBinomial(Head):
    """Counts of a mean and a shape, the variance mean + shape mean^2, as DeepAR has them (Salinas et al. 2020)."""

    size = 2

    def parameters(self, raw: Tensor, center: Tensor, spread: Tensor, scale: Tensor) -> Tensor:
        mean = (F.softplus(raw[..., 0]) + _LEAST) * scale
        return torch.stack([mean, (F.softplus(raw[..., 1]) + _LEAST) / scale.sqrt()], -1)

    def loss(self, parameters: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        mean, shape = parameters.unbind(-1)
        counts, size = (target * scale).round(), 1 / shape
        chance = (size + counts).lgamma() - (counts + 1).lgamma() - size.lgamma()
        return -chance + size * torch.log1p(shape * mean) - counts * (shape * mean / (1 + shape * mean)).log()

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
    """Return the pinball loss of quantiles, `(..., Q)`, of targets `(...)`.

    Example:
        >>> pinball(torch.tensor([[1.0, 3.0]]), torch.tensor([2.0]), [0.1, 0.9])
        tensor([[0.1000, 0.1000]])
    """
    away = target[..., None] - quantiles
    at = torch.tensor(levels, dtype=quantiles.dtype, device=quantiles.device)
    return torch.maximum(at * away, (at - 1) * away)
