"""Scores of forecasts over rolling origins, for the model and two naive forecasts; tests compare them with NumPy."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.tasks.forecasting.heads import pinball
from glassgate.tasks.forecasting.output import DATA_SCORES, PREFIXES
from glassgate.tasks.metrics.scores import Sums

_ROUNDING = 1e-6  # relative error of a float32 number after scaling


class ForecastScores(Sums):
    """Errors of the model, of the naive and of the seasonal naive forecast, and the quality of the model's quantiles.

    - data_mae, data_rmse: mean absolute error and root mean squared error in the units of the data, over all series
    - mape: absolute error divided by the absolute value, for values other than zero
    - smape: absolute error divided by the mean of absolute forecast and absolute value, from 0 to 2 (Makridakis 1993);
      0 if both are zero
    - mse, mae: errors in units of the standard deviation of the training data, as in publications
    - mase: absolute error divided by that of the seasonal naive forecast in training (Hyndman & Koehler 2006)
    - rmsse: `sqrt(MSE / naive_mse)`, where MSE is the mean squared error in a window (Makridakis et al. 2022)
    - wql: weighted quantile loss (as in GluonTS): 2 * sum of the pinball losses / sum of absolute values, averaged over
      the levels. All quantiles of a naive forecast equal the forecast
    - coverage: the fraction of values between the lowest and the highest quantile

    Args:
        levels: the levels of the quantiles, ascending; empty for forecasts without quantiles
    """

    def __init__(self, levels: Sequence[float] = ()):
        floats = {"scaled": (3, 4), "data": (3, 4), "losses": (3,), "absolute_sum": ()}
        zeros = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in floats.items()}
        counts = dict.fromkeys(("windows", "steps", "nonzero", "inside"), torch.tensor(0))
        super().__init__(**zeros, **counts)
        self.levels = list(levels)

    def update(
        self,
        forecasts: Tensor,
        target: Tensor,
        naive_mae: Tensor,
        naive_mse: Tensor,
        shift: Tensor,
        scale: Tensor,
        quantiles: Tensor | None = None,
    ) -> None:
        """Add windows.

        Args:
            forecasts: the scaled forecasts of the model and of the two naive methods, `(3, N, H)`
            target: the scaled true values, `(N, H)`
            naive_mae, naive_mse: the errors of the seasonal naive forecast in the training data of each series, `(N,)`
            shift, scale: the offset and the divisor of each series, `(N,)`
            quantiles: the scaled quantiles of the model, `(N, H, Q)`
        """
        forecasts, target = forecasts.double(), target.double()
        errors = forecasts - target
        mse, mae = (errors**2).mean(-1), errors.abs().mean(-1)
        self.scaled += torch.stack([mse, mae, mae / naive_mae, (mse / naive_mse).sqrt()], -1).sum(1)
        self.windows += len(target)
        shift, scale = shift.double()[:, None], scale.double()[:, None]
        values, in_units = target * scale + shift, forecasts * scale + shift
        errors, magnitude = (in_units - values).abs(), values.abs()
        # Scaling a zero and scaling it back leaves a number about as large as a float32 rounding error.
        rounding = _ROUNDING * (shift.abs() + scale)
        is_nonzero = magnitude > rounding
        relative = (errors / magnitude).where(is_nonzero, 0.0)
        mean_magnitude = (magnitude + in_units.abs()) / 2
        symmetric = (errors / mean_magnitude).where(mean_magnitude > rounding, 0.0)
        self.data += torch.stack([errors, errors**2, relative, symmetric], -1).sum((1, 2))
        self.steps += target.numel()
        self.nonzero += is_nonzero.sum()
        if self.levels and quantiles is not None:
            candidates = (quantiles.double(), *(each[..., None].expand_as(quantiles) for each in forecasts[1:]))
            losses = [pinball(each, target, self.levels) * scale[..., None] for each in candidates]
            self.losses += torch.stack([2 * each.mean(-1).sum() for each in losses])
            self.absolute_sum += magnitude.sum()
            self.inside += ((quantiles[..., 0] <= target) & (target <= quantiles[..., -1])).sum()

    def compute(self) -> dict[str, Tensor]:
        """Return the means; mape is NaN if all values are zero."""
        mae, mse, _, smape = (self.data / self.steps).T
        groups = [dict(zip(DATA_SCORES, (mae, mse.sqrt(), self.data[:, 2] / self.nonzero, smape), strict=True))]
        groups.append(dict(zip(("mse", "mae", "mase", "rmsse"), (self.scaled / self.windows).T, strict=True)))
        if self.levels:
            groups.append({"wql": self.losses / self.absolute_sum})
        means = [(k, prefix, group) for group in groups for k, prefix in enumerate(PREFIXES)]
        scores = {prefix + name: mean[k] for k, prefix, group in means for name, mean in group.items()}
        return scores | ({"coverage": self.inside / self.steps} if self.levels else {})
