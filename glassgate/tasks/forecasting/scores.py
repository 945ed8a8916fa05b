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

    - mse, mae: errors of values divided by the standard deviation of the training part, as in published figures
    - mase: absolute error divided by that of the seasonal naive forecast in the training part (Hyndman & Koehler 2006)
    - rmsse: root of the squared error divided by that of the same naive forecast, per window (Makridakis et al. 2022)

    torchmetrics has mse and mae, but only for one forecast at a time.
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
        """Add windows: forecasts and targets `(N, H)`, and the naive errors of their series, `(N,)`."""
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

    - data_mae, data_rmse: mean absolute error and root mean squared error, over all series even if their units differ
    - mape: absolute error divided by the absolute value, for values other than zero
    - smape: absolute error divided by the mean of absolute forecast and absolute value, from 0 to 2 (Makridakis 1993);
      0 if both are zero
    """

    full_state_update = False

    total: Tensor
    count: Tensor
    nonzero: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(len(WHO), len(IN_UNITS), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("nonzero", torch.tensor(0), dist_reduce_fx="sum")

    def update(
        self, preds: Tensor, naive: Tensor, seasonal: Tensor, target: Tensor, shift: Tensor, scale: Tensor
    ) -> None:
        """Add windows: scaled forecasts and targets `(N, H)`, and their offsets and divisors, `(N,)`."""
        shift, scale = shift.double()[:, None], scale.double()[:, None]
        values = target.double() * scale + shift
        forecasts = torch.stack([preds, naive, seasonal]).double() * scale + shift
        errors, size = (forecasts - values).abs(), values.abs()
        rounding = _ROUNDING * (shift.abs() + scale)  # the float32 rounding error: a smaller value is zero in the data
        nonzero = size > rounding
        relative = (errors / size).where(nonzero, 0.0)
        both = (size + forecasts.abs()) / 2
        symmetric = (errors / both).where(both > rounding, 0.0)
        self.total += torch.stack([errors, errors**2, relative, symmetric], -1).sum((1, 2))
        self.count += target.numel()
        self.nonzero += nonzero.sum()

    def compute(self) -> dict[str, Tensor]:
        """Return the means over all steps of all windows; mape is NaN if all values are zero."""
        mae, mse, _, smape = (self.total / self.count).T
        mape = self.total[:, 2] / self.nonzero
        rows = dict(zip(IN_UNITS, (mae, mse.sqrt(), mape, smape), strict=True))
        return {who + name: row[k] for k, who in enumerate(WHO) for name, row in rows.items()}


class Intervals(Metric):
    """Scores of quantiles, in the units of the data.

    - wql: twice the pinball loss divided by the sum of absolute values, as a mean over the levels (as in GluonTS); all
      quantiles of a naive forecast are its value
    - coverage: the fraction of values between the lowest and the highest quantile

    Args:
        levels: the levels of the quantiles, ascending
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
