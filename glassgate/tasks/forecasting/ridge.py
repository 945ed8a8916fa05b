"""Ridge regression of the horizon on the look-back: averaged with a trained network, and as a baseline."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.data.batches import Batch, Encoded, Loader, lengths
from glassgate.tasks.forecasting.network import Direct, LinearMap, Output
from glassgate.tasks.forecasting.windows import Windows, window_counts

_PENALTIES = (0.1, 1.0, 10.0, 100.0)  # the dev data chooses one of them
_STANDARD_ERRORS = 2.0  # an interval of 95 %
_ROWS = 256  # windows that are read at once
_MAX_VALUES = 2**24  # values of all windows; of more windows, evenly spaced ones are read
_MAX_STEPS = 1024  # steps of the look-back that the baseline reads
_LEVELS = np.linspace(0.025, 0.975, 20)

Rows = tuple[Tensor, Tensor, Tensor]
"""Windows: their look-back, `(M, B)`, their horizon, `(M, H)`, and the weights of their squared errors, `(M, 1)`."""


class Products:
    """Sums over windows of products of 1, the B values of the look-back and the H values of the horizon, in float64."""

    def __init__(self, windows: Iterable[Rows]):
        self.inputs = self.cross = self.squares = torch.zeros((), dtype=torch.float64)
        for past, future, weights in windows:
            inputs = torch.cat([torch.ones_like(past[:, :1]), past], 1).double()
            weighted, targets = inputs * weights, future.double()
            self.inputs = self.inputs + weighted.T @ inputs
            self.cross = self.cross + weighted.T @ targets
            self.squares = self.squares + (targets**2 * weights).sum(0)

    def ridge(self, penalty: float) -> Tensor:
        """Return the weights of a constant, which has no penalty, and of the inputs, `(1 + B, H)`."""
        penalties = torch.full((len(self.inputs),), penalty, dtype=torch.float64)
        penalties[0] = 0.0
        return torch.linalg.solve(self.inputs + penalties.diag(), self.cross)

    def errors(self, weights: Tensor) -> Tensor:
        """Return the mean squared error of each step of the horizon, `(H,)`, for the weights that `ridge` returns."""
        total = self.squares + (weights * (self.inputs @ weights - 2 * self.cross)).sum(0)
        return total.clamp(min=0) / self.inputs[0, 0]


def fit(train: Iterable[Rows], dev: Iterable[Rows] | None) -> LinearMap:
    """Return the ridge regression of training windows with the smallest error on dev windows, if there are any."""
    products = Products(train)
    checked = products if dev is None else Products(dev)
    fitted = map(products.ridge, _PENALTIES if dev is not None else (1.0,))
    weights = min(fitted, key=lambda weights: float(checked.errors(weights).mean()))
    return LinearMap(*(each.float() for each in (weights[1:].T, weights[0], checked.errors(weights).sqrt())))


def windows_of(network: Direct, encoded: Sequence[Encoded], padding: Mapping[str, int]) -> Iterator[Rows]:
    """Yield the windows of encoded series, normalised as the network reads them."""
    for batch in _batches(encoded, network.back + network.horizon, padding):
        window = network.window(batch)
        past, future = window.values.split([network.back, network.horizon], 1)
        yield past, future, window.scale**2


@torch.no_grad()
def share_of_network(network: Direct, fitted: LinearMap, dev: Sequence[Encoded], padding: Mapping[str, int]) -> float:
    """Return the share of the network in its average with a fitted linear map, from 0 to 1.

    The errors of the map on dev data are regressed on the differences between the two forecasts. The share is the slope
    less `_STANDARD_ERRORS` of its standard errors. Windows that overlap are not independent, so only one in H counts.
    """
    total = torch.zeros(3, dtype=torch.float64)
    count = 0
    for batch in _batches(dev, network.back + network.horizon, padding):
        window, scale = network.window(batch), batch["scale"][:, None]
        past, future = window.values.split([network.back, network.horizon], 1)
        forecast = network(batch).forecast
        linear = (past @ fitted.weight.T + fitted.bias) * window.scale + window.shift
        difference = network.head.point(forecast, scale) - linear
        error = future * window.scale + window.shift - linear
        total += torch.stack([(error**2).sum(), (error * difference).sum(), (difference**2).sum()]).double()
        count += len(past)
    squares, cross, spread = total.tolist()
    if cross <= 0:
        return 0.0
    slope, explained = cross / spread, cross**2 / (spread * squares)
    standard_error = slope * sqrt((1 - explained) / explained / (count / network.horizon))
    return min(1.0, max(0.0, slope - _STANDARD_ERRORS * standard_error))


class RidgeOnLookBack(Baseline):
    """Forecasts the differences of the horizon from the last value, linearly in those of the look-back.

    All series have the same weights. Quantiles are the forecast plus the quantiles of its errors on dev data, or else
    on training data.
    """

    name = "ridge regression on the look-back"

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        every = _stride(train, self.task.options.steps_back + self.task.options.horizon)
        if every > 1:
            self.note = f"trained on every {every}th window"
        self.map = fit(self._windows(train), self._windows(dev) if len(dev) else None)
        residuals = [future - self._forecast(past) for past, future, _ in self._windows(dev if len(dev) else train)]
        self.spread = torch.from_numpy(np.quantile(torch.cat(residuals).numpy(), _LEVELS, axis=0)).float()

    def forward(self, batch: Batch) -> Output:
        """Return paths, `(N, P, H)`: the forecast plus each of P quantiles of its errors, or one path without them."""
        past, last, _ = self._split(batch["values"])
        paths = (self._forecast(past) + last)[:, None]
        if self.task.head.has_quantiles:
            paths = paths + (self.spread - self.spread.mean(0))
        return Output(paths, None, paths)

    def _forecast(self, past: Tensor) -> Tensor:
        return past @ self.map.weight.T + self.map.bias

    def _windows(self, encoded: Sequence[Encoded]) -> Iterator[Rows]:
        options = self.task.options
        for batch in _batches(encoded, options.steps_back + options.horizon, self.task.padding):
            past, last, future = self._split(batch["values"])
            yield past, future - last, torch.ones_like(last)

    def _split(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs, the last value before the horizon, and the horizon of windows, `(M, L)`."""
        options = self.task.options
        past, future = values[:, : -options.horizon], values[:, -options.horizon :]
        last = past[:, -1:]
        return past[:, -min(options.steps_back, _MAX_STEPS) :] - last, last, future


def _batches(encoded: Sequence[Encoded], size: int, padding: Mapping[str, int]) -> Iterator[Batch]:
    """The windows of encoded series, in batches."""
    yield from Loader(encoded, Windows(lengths(encoded), size, _ROWS, _stride(encoded, size)), padding)


def _stride(encoded: Sequence[Encoded], size: int) -> int:
    return max(1, -(-int(window_counts(lengths(encoded), size).sum()) * size // _MAX_VALUES))
