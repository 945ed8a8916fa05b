"""Scores of forecasts over rolling origins, for the model and two naive forecasts; tests compare them with NumPy."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from glassgate.tasks.forecasting.heads import pinball

_ROUNDING = 1e-6

WHO = ("", "naive_", "seasonal_")
"""The prefix of a score's name: the model, the last value, and the value one season before."""

SCALED = ("mse", "mae", "mase", "rmsse", "wql", "coverage")
IN_UNITS = ("data_mae", "data_rmse", "mape", "smape")


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


def naive_forecasts(values: Tensor, horizon: int, season: int) -> tuple[Tensor, Tensor]:
    """Return the last value before the horizon, and those a season before, `(N, H)` each, of windows `(N, L)`.

    Example:
        >>> [each.tolist() for each in naive_forecasts(torch.tensor([[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]]), 3, 2)]
        [[[3.0, 3.0, 3.0]], [[2.0, 3.0, 2.0]]]
    """
    present = values.shape[1] - horizon
    before = present - season + torch.arange(horizon, device=values.device) % season
    return values[:, present - 1 : present].expand(-1, horizon), values[:, before]


def score_table(scores: Mapping[str, float], levels: Sequence[float]) -> str:
    """Return the scores as tables of the model and the naive forecasts, scaled and in the units of the data.

    A sentence below names each naive forecast that the model does not beat.

    Example:
        >>> print(score_table({"mse": 2.0, "naive_mse": 1.0, "seasonal_mse": 4.0, "mape": 0.25}, []))
                           mse
        model           2.0000
        last value      1.0000
        season before   4.0000
        The model does not beat the last value (mse 2.0000 vs. 1.0000): train longer, or forecast with it.
        <BLANKLINE>
        in the units of the data, and in percent
                          mape
        model           25.00%
        last value
        season before
    """
    lines = _rows(scores, SCALED)
    if "coverage" in scores:
        lines.append(f"coverage: of the interval that should hold {levels[-1] - levels[0]:.0%} of the values")
    first = "wql" if "wql" in scores else "mse"
    for who, title in list(_TITLES.items())[1:]:
        if who + first in scores and not scores[first] < scores[who + first]:
            lines.append(
                f"The model does not beat the {title} ({first} {scores[first]:.4f} vs. {scores[who + first]:.4f}): "
                "train longer, or forecast with it."
            )
    if not any(name in scores for name in IN_UNITS):
        return "\n".join(lines)
    return "\n".join([*lines, "", "in the units of the data, and in percent", *_rows(scores, IN_UNITS)])


_TITLES = dict(zip(WHO, ("model", "last value", "season before"), strict=True))


def _rows(scores: Mapping[str, float], names: Sequence[str]) -> list[str]:
    """A header, and a row for the model and each naive forecast; of the scores that there are."""
    names = [name for name in names if name in scores]
    widths = [max(9, *(len(_cell(scores, who + name, name)) + 2 for who in WHO)) for name in names]
    lines = [" " * 13 + "".join(f"{n.removeprefix('data_'):>{width}}" for n, width in zip(names, widths, strict=True))]
    for who, title in _TITLES.items():
        cells = (f"{_cell(scores, who + n, n):>{width}}" for n, width in zip(names, widths, strict=True))
        lines.append(f"{title:13}{''.join(cells)}".rstrip())
    return lines


def _cell(scores: Mapping[str, float], key: str, name: str) -> str:
    if key not in scores:
        return ""
    if name in ("mape", "smape"):
        return f"{scores[key]:.2%}"
    return f"{scores[key]:.4g}" if name in IN_UNITS else f"{scores[key]:.4f}"
