"""Scores of forecasts over rolling origins, for the model and two naive forecasts; tests compare them with NumPy."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.tasks.forecasting.heads import pinball
from glassgate.tasks.forecasting.summary import DATA_SCORES, PREFIXES
from glassgate.tasks.metrics.scores import Sums

_ROUNDING = 1e-6  # relative error of a float32 number after scaling


class ScaledErrors(Sums):
    """Mean errors of the model and of the two naive forecasts, comparable between series with different units.

    - mse, mae: errors in units of the standard deviation of the training data, as in publications
    - mase: absolute error divided by `naive_mae`, see `update` (Hyndman & Koehler 2006)
    - rmsse: `sqrt(MSE / naive_mse)`, where MSE is the mean squared error in a window (Makridakis et al. 2022)

    torchmetrics has mse and mae, but only for one forecast at a time.
    """

    def __init__(self) -> None:
        super().__init__(total=torch.zeros(len(PREFIXES), 4, dtype=torch.float64), count=torch.tensor(0))

    def update(self, forecasts: Tensor, target: Tensor, naive_mae: Tensor, naive_mse: Tensor) -> None:
        """Add windows.

        Args:
            forecasts: the forecasts of the model and of the two naive methods, `(3, N, H)`
            target: the true values, `(N, H)`
            naive_mae, naive_mse: the mean absolute error and the mean squared error of the seasonal naive forecast, in
                the training data of each series, `(N,)`
        """
        errors = forecasts.double() - target.double()
        mse, mae = (errors**2).mean(-1), errors.abs().mean(-1)
        self.total += torch.stack([mse, mae, mae / naive_mae, (mse / naive_mse).sqrt()], -1).sum(1)
        self.count += len(target)

    def compute(self) -> dict[str, Tensor]:
        """Return the means over all windows."""
        means = self.total / self.count
        names = ("mse", "mae", "mase", "rmsse")
        return {prefix + name: means[k, n] for k, prefix in enumerate(PREFIXES) for n, name in enumerate(names)}


class DataErrors(Sums):
    """Mean errors in the units of the data, and relative errors, of the model and of the two naive forecasts.

    - data_mae, data_rmse: mean absolute error and root mean squared error, over all series even if their units differ
    - mape: absolute error divided by the absolute value, for values other than zero
    - smape: absolute error divided by the mean of absolute forecast and absolute value, from 0 to 2 (Makridakis 1993);
      0 if both are zero
    """

    def __init__(self) -> None:
        total = torch.zeros(len(PREFIXES), len(DATA_SCORES), dtype=torch.float64)
        super().__init__(total=total, count=torch.tensor(0), nonzero=torch.tensor(0))

    def update(self, forecasts: Tensor, target: Tensor, shift: Tensor, scale: Tensor) -> None:
        """Add windows: scaled forecasts `(3, N, H)` and targets `(N, H)`, and their offsets and divisors, `(N,)`."""
        shift, scale = shift.double()[:, None], scale.double()[:, None]
        values = target.double() * scale + shift
        forecasts = forecasts.double() * scale + shift
        errors, magnitude = (forecasts - values).abs(), values.abs()
        # Scaling a zero and scaling it back leaves a number about as large as a float32 rounding error.
        rounding = _ROUNDING * (shift.abs() + scale)
        is_nonzero = magnitude > rounding
        relative = (errors / magnitude).where(is_nonzero, 0.0)
        mean_magnitude = (magnitude + forecasts.abs()) / 2
        symmetric = (errors / mean_magnitude).where(mean_magnitude > rounding, 0.0)
        self.total += torch.stack([errors, errors**2, relative, symmetric], -1).sum((1, 2))
        self.count += target.numel()
        self.nonzero += is_nonzero.sum()

    def compute(self) -> dict[str, Tensor]:
        """Return the means over all steps of all windows; mape is NaN if all values are zero."""
        mae, mse, _, smape = (self.total / self.count).T
        mape = self.total[:, 2] / self.nonzero
        by_score = dict(zip(DATA_SCORES, (mae, mse.sqrt(), mape, smape), strict=True))
        return {prefix + name: values[k] for k, prefix in enumerate(PREFIXES) for name, values in by_score.items()}


class QuantileScores(Sums):
    """Scores of quantiles, in the units of the data.

    - wql: weighted quantile loss (as in GluonTS): 2 * sum of the pinball losses / sum of absolute values, averaged over
      the levels. All quantiles of a naive forecast equal the forecast
    - coverage: the fraction of values between the lowest and the highest quantile

    Args:
        levels: the levels of the quantiles, ascending
    """

    def __init__(self, levels: Sequence[float]):
        loss, absolute_sum = torch.zeros(len(PREFIXES), dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
        super().__init__(loss=loss, absolute_sum=absolute_sum, inside=torch.tensor(0), count=torch.tensor(0))
        self.levels = list(levels)

    def update(self, quantiles: Tensor, forecasts: Tensor, target: Tensor, shift: Tensor, scale: Tensor) -> None:
        """Add windows.

        Args:
            quantiles: the scaled quantiles of the model, `(N, H, Q)`
            forecasts, target, shift, scale: as for `DataErrors`
        """
        naive_quantiles = [each[..., None].expand_as(quantiles) for each in forecasts[1:]]
        losses = [
            pinball(each.double(), target.double(), self.levels) * scale.double()[:, None, None]
            for each in (quantiles, *naive_quantiles)
        ]
        self.loss += torch.stack([2 * each.mean(-1).sum() for each in losses])
        self.absolute_sum += (target.double() * scale[:, None] + shift[:, None]).abs().sum()
        self.inside += ((quantiles[..., 0] <= target) & (target <= quantiles[..., -1])).sum()
        self.count += target.numel()

    def compute(self) -> dict[str, Tensor]:
        """Return the weighted quantile losses, and the coverage."""
        losses = {f"{prefix}wql": self.loss[k] / self.absolute_sum for k, prefix in enumerate(PREFIXES)}
        return {**losses, "coverage": self.inside / self.count}
