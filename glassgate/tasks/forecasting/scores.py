"""Scores of forecasts over rolling origins, of the model and of two naive forecasts; tests compare them with NumPy."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from glassgate.tasks.forecasting.heads import pinball

WHO = ("", "naive_", "seasonal_")
"""What stands before the name of a score of the model, of the last value, and of the value a season before."""


class Errors(Metric):
    """Mean errors of the model and of the two naive forecasts.

    - mse, mae: of values divided by the deviation of each series' training part, as published figures have them
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
        """Count windows: forecasts and targets `(N, H)`, and the naive errors of each one's series, `(N,)`."""
        away = torch.stack([preds, naive, seasonal]).double() - target.double()
        mse, mae = (away**2).mean(-1), away.abs().mean(-1)
        self.total += torch.stack([mse, mae, mae / absolute, (mse / squared).sqrt()], -1).sum(1)
        self.count += len(target)

    def compute(self) -> dict[str, Tensor]:
        """Return the means over all windows."""
        means = self.total / self.count
        names = ("mse", "mae", "mase", "rmsse")
        return {who + name: means[k, n] for k, who in enumerate(WHO) for n, name in enumerate(names)}


class Intervals(Metric):
    """How good quantiles are, in units of the data.

    - wql: twice the pinball loss over the sum of all values, the mean over the levels (as GluonTS has it); of
      a forecast without quantiles each is its value
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
        """Count windows: quantiles `(N, H, Q)`, the rest `(N, H)`, and what the series were scaled by, `(N,)`."""
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
    """Return the scores as a table: the model, the naive forecasts, and whether it beats them.

    Example:
        >>> print(score_table({"mse": 2.0, "naive_mse": 1.0, "seasonal_mse": 4.0}, []))
                           mse
        model           2.0000
        last value      1.0000
        season before   4.0000
        The model does not beat the last value (mse 2.0000, that 1.0000): train longer, or forecast with it.
    """
    names = [name for name in ("mse", "mae", "mase", "rmsse", "wql", "coverage") if name in scores]
    titles = dict(zip(WHO, ("model", "last value", "season before"), strict=True))
    lines = [" " * 13 + "".join(f"{name:>9}" for name in names)]
    for who, title in titles.items():
        cells = (f"{scores[who + name]:9.4f}" if who + name in scores else " " * 9 for name in names)
        lines.append(f"{title:13}{''.join(cells)}".rstrip())
    if "coverage" in scores:
        lines.append(f"coverage: of the interval that should hold {levels[-1] - levels[0]:.0%} of the values")
    first = "wql" if "wql" in scores else "mse"
    for who, title in list(titles.items())[1:]:
        if who + first in scores and not scores[first] < scores[who + first]:
            lines.append(
                f"The model does not beat the {title} ({first} {scores[first]:.4f}, that {scores[who + first]:.4f}): "
                "train longer, or forecast with it."
            )
    return "\n".join(lines)
