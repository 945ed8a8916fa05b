"""Scores of forecasts over rolling origins, for the model and two naive forecasts; tests compare them with NumPy."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from glassgate.tasks.forecasting.heads import pinball
from glassgate.tasks.forecasting.summary import IN_UNITS, WHO

_ROUNDING = 1e-6


class Errors(Metric):
    """Mean scaled errors of the model and of the two naive forecasts.

    - mse, mae: of values divided by the standard deviation of each series' training part, as in published figures
    - mase: the absolute error over that of the seasonal naive forecast in the training part (Hyndman & Koehler 2006)
    - rmsse: the root of the squared error over the same squared, of each window (Makridakis et al. 2022)

    torchmetrics has the first two for one forecast; here one sum serves three.
    """

    full_state_update = False

    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(len(WHO), 4, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(
        self, preds: Tensor, naive: Tensor, seasonal: Tensor, target: Tensor, absolute: Tensor, squared: Tensor
    ) -> None:
        """Add windows: forecasts and targets `(N, H)`, and the naive errors of each one's series, `(N,)`."""
        away = torch.stack([preds, naive, seasonal]).double() - target.double()
        mse, mae = (away**2).mean(-1), away.abs().mean(-1)
        self.total += torch.stack([mse, mae, mae / absolute, (mse / squared).sqrt()], -1).sum(1)
        self.count += len(target)

    def compute(self) -> dict[str, Tensor]:
        """Return the means over all windows."""
        means = self.total / self.count
        names = ("mse", "mae", "mase", "rmsse")
        return {who + name: means[k, n] for k, who in enumerate(WHO) for n, name in enumerate(names)}


class DataErrors(Metric):
    """Mean errors in the units of the data, and in percent, of the model and of the two naive forecasts.

    - data_mae, data_rmse: the mean absolute error, and the root of the mean squared error; with several series the
      mean over all of them, whatever their units
    - mape: the absolute error over the absolute value, for values other than zero
    - smape: the absolute error over the mean of the absolute forecast and the absolute value, from 0 to 2 (Makridakis
      1993); 0 where both are zero
    """

    full_state_update = False

    total: Tensor
    count: Tensor
    others: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(len(WHO), len(IN_UNITS), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("others", torch.tensor(0), dist_reduce_fx="sum")

    def update(
        self, preds: Tensor, naive: Tensor, seasonal: Tensor, target: Tensor, shift: Tensor, scale: Tensor
    ) -> None:
        """Add windows: scaled forecasts and targets `(N, H)`; their offsets and divisors, `(N,)`."""
        shift, scale = shift.double()[:, None], scale.double()[:, None]
        values = target.double() * scale + shift
        said = torch.stack([preds, naive, seasonal]).double() * scale + shift
        away, size = (said - values).abs(), values.abs()
        rounding = _ROUNDING * (shift.abs() + scale)  # of float32: a value this small is zero in the data
        there = size > rounding
        relative = (away / size).where(there, 0.0)
        both = (size + said.abs()) / 2
        symmetric = (away / both).where(both > rounding, 0.0)
        self.total += torch.stack([away, away**2, relative, symmetric], -1).sum((1, 2))
        self.count += target.numel()
        self.others += there.sum()

    def compute(self) -> dict[str, Tensor]:
        """Return the means over all steps of all windows; mape is NaN if every value is zero."""
        mae, mse, _, smape = (self.total / self.count).T
        mape = self.total[:, 2] / self.others
        rows = dict(zip(IN_UNITS, (mae, mse.sqrt(), mape, smape), strict=True))
        return {who + name: row[k] for k, who in enumerate(WHO) for name, row in rows.items()}


class Intervals(Metric):
    """Scores of quantiles, in the units of the data.

    - wql: twice the pinball loss over the sum of all values, the mean over the levels (as in GluonTS); the quantiles
      of a forecast without any are its value
    - coverage: the fraction of values between the lowest quantile and the highest

    Args:
        levels: of the quantiles, rising
    """

    full_state_update = False

    loss: Tensor
    size: Tensor
    inside: Tensor
    count: Tensor

    def __init__(self, levels: Sequence[float]):
        super().__init__()
        self.levels = list(levels)
        self.add_state("loss", torch.zeros(len(WHO), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("size", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("inside", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(
        self, quantiles: Tensor, naive: Tensor, seasonal: Tensor, target: Tensor, shift: Tensor, scale: Tensor
    ) -> None:
        """Add windows: quantiles `(N, H, Q)`, the rest `(N, H)`, and the divisors of the series, `(N,)`."""
        steps = scale.double()[:, None, None]
        same = [each[..., None].expand_as(quantiles) for each in (naive, seasonal)]
        losses = [pinball(each.double(), target.double(), self.levels) * steps for each in (quantiles, *same)]
        self.loss += torch.stack([2 * each.mean(-1).sum() for each in losses])
        self.size += (target.double() * scale[:, None] + shift[:, None]).abs().sum()
        self.inside += ((quantiles[..., 0] <= target) & (target <= quantiles[..., -1])).sum()
        self.count += target.numel()

    def compute(self) -> dict[str, Tensor]:
        """Return the weighted quantile losses, and the coverage."""
        losses = {f"{who}wql": self.loss[k] / self.size for k, who in enumerate(WHO)}
        return {**losses, "coverage": self.inside / self.count}
