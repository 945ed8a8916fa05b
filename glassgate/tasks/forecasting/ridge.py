"""Ridge regression of the horizon on the look-back window, and its average with a trained network."""

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt

import torch
from torch import Tensor

from glassgate.tasks.data.batches import Batch, Encoded, Loader, lengths
from glassgate.tasks.forecasting.network import Direct, LinearMap
from glassgate.tasks.forecasting.windows import Windows, window_counts

_PENALTIES = (0.1, 1.0, 10.0, 100.0)  # the dev data chooses one of them
_STANDARD_ERRORS = 2.0  # an interval of 95 %
_ROWS = 256  # windows that are read at once
_MAX_VALUES = 2**24  # values of all windows; of more windows, evenly spaced ones are read


class Products:
    """Sums over windows of products of 1, the B values of the look-back and the H values of the horizon, in float64.

    Args:
        back, horizon: B and H
    """

    def __init__(self, back: int, horizon: int):
        self.inputs = torch.zeros(1 + back, 1 + back, dtype=torch.float64)
        self.cross = torch.zeros(1 + back, horizon, dtype=torch.float64)
        self.squares = torch.zeros(horizon, dtype=torch.float64)

    def add(self, past: Tensor, future: Tensor, weights: Tensor) -> None:
        """Add windows: `past`, `(M, B)`, `future`, `(M, H)`, and the weights of their squared errors, `(M, 1)`."""
        inputs = torch.cat([torch.ones_like(past[:, :1]), past], 1).double()
        weighted, targets = inputs * weights, future.double()
        self.inputs += weighted.T @ inputs
        self.cross += weighted.T @ targets
        self.squares += (targets**2 * weights).sum(0)

    def ridge(self, penalty: float) -> Tensor:
        """Return the weights of a constant, which has no penalty, and of the inputs, `(1 + B, H)`."""
        penalties = torch.full((len(self.inputs),), penalty, dtype=torch.float64)
        penalties[0] = 0.0
        return torch.linalg.solve(self.inputs + penalties.diag(), self.cross)

    def errors(self, weights: Tensor) -> Tensor:
        """Return the mean squared error of each step of the horizon, `(H,)`, for the weights that `ridge` returns."""
        total = self.squares + (weights * (self.inputs @ weights - 2 * self.cross)).sum(0)
        return total.clamp(min=0) / self.inputs[0, 0]


def fit(network: Direct, train: Sequence[Encoded], dev: Sequence[Encoded], padding: Mapping[str, int]) -> LinearMap:
    """Return the ridge regression of the training windows whose penalty has the smallest error on the dev windows."""
    products, dev_products = (_products(network, _batches(network, encoded, padding)) for encoded in (train, dev))
    weights = min(map(products.ridge, _PENALTIES), key=lambda weights: float(dev_products.errors(weights).mean()))
    deviation = dev_products.errors(weights).sqrt()
    return LinearMap(*(each.float() for each in (weights[1:].T, weights[0], deviation)))


@torch.no_grad()
def share_of_network(network: Direct, fitted: LinearMap, dev: Sequence[Encoded], padding: Mapping[str, int]) -> float:
    """Return the share of the network in its average with a fitted linear map, from 0 to 1.

    The errors of the map on dev data are regressed on the differences between the two forecasts. The share is the slope
    less `_STANDARD_ERRORS` of its standard errors. Windows that overlap are not independent, so only one in H counts.
    """
    total = torch.zeros(3, dtype=torch.float64)
    count = 0
    for batch in _batches(network, dev, padding):
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


def _products(network: Direct, batches: Iterator[Batch]) -> Products:
    products = Products(network.back, network.horizon)
    for batch in batches:
        window = network.window(batch)
        past, future = window.values.split([network.back, network.horizon], 1)
        products.add(past, future, window.scale**2)
    return products


def _batches(network: Direct, encoded: Sequence[Encoded], padding: Mapping[str, int]) -> Iterator[Batch]:
    """The windows of encoded series, as batches of the network."""
    size = network.back + network.horizon
    every = max(1, -(-int(window_counts(lengths(encoded), size).sum()) * size // _MAX_VALUES))
    yield from Loader(encoded, Windows(lengths(encoded), size, _ROWS, every), padding)
