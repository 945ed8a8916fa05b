"""The baseline of forecasting: ridge regression of the horizon on the look-back window."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from glassgate.tasks.baselines.baseline import Baseline, quiet
from glassgate.tasks.data.batches import Batch, Encoded, lengths
from glassgate.tasks.forecasting.network import Output
from glassgate.tasks.forecasting.windows import Windows, window_counts

_MAX_VALUES = 2**24  # values of all training windows
_MAX_STEPS = 1024  # steps of the look-back
_PENALTIES = (0.1, 1.0, 10.0, 100.0)
_LEVELS = np.linspace(0.025, 0.975, 20)


class RidgeOnLookBack(Baseline):
    """Forecasts the differences of the horizon from the last value, linearly in those of the look-back window.

    All series have the same weights. The penalty is the best one on dev data, or 1 without dev data. Quantiles are the
    forecast plus the quantiles of its errors on dev data, or else on training data.
    """

    name = "ridge regression on the look-back"

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        from sklearn.linear_model import Ridge

        options = self.task.options
        self.horizon, self.back = options.horizon, min(options.steps_back, _MAX_STEPS)
        past, future = self._windows(train, options.steps_back)
        dev_windows = self._windows(dev, self.task.context) if len(dev) else None
        if dev_windows is not None and not len(dev_windows[0]):
            dev_windows = None
        errors: list[Any] = []
        for penalty in _PENALTIES if dev_windows else (1.0,):
            with quiet():
                model = Ridge(alpha=penalty).fit(past, future)
            checked = dev_windows or (past, future)
            residuals = checked[1] - model.predict(checked[0]).reshape(checked[1].shape)
            errors.append((float((residuals**2).mean()), len(errors), model, residuals))
        _, _, self.model, residuals = min(errors)
        self.spread = torch.from_numpy(np.quantile(residuals, _LEVELS, axis=0)).float()

    def forward(self, batch: Batch) -> Output:
        """Return paths, `(N, P, H)`: the forecast plus each of P quantiles of its errors, or one path without them."""
        past, last, _ = self._split(batch["values"].numpy())
        paths = torch.from_numpy(self.model.predict(past).reshape(len(past), self.horizon) + last).float()[:, None]
        if self.task.head.has_quantiles:
            paths = paths + (self.spread - self.spread.mean(0))
        return Output(paths, None, paths)

    def _windows(self, encoded: Sequence[Encoded], context: int) -> tuple[np.ndarray, np.ndarray]:
        """The inputs, `(M, back)`, and the targets, `(M, H)`, of windows of encoded series, within the limits."""
        size = context + self.horizon
        total = int(window_counts(lengths(encoded), size).sum())
        every = max(1, -(-total * (self.back + self.horizon) // _MAX_VALUES))
        if every > 1:
            self.note = f"trained on every {every}th window"
        windows = Windows(lengths(encoded), size, 1, every)
        rows = [
            encoded[int(index)]["values"][int(start) : int(start) + size]
            for index, start in zip(windows.index, windows.start, strict=True)
        ]
        past, last, future = self._split(np.stack(rows) if rows else np.zeros((0, size), np.float32))
        return past, future - last

    def _split(self, values: np.ndarray) -> Any:
        """The inputs, the last value before the horizon, and the horizon of windows, `(M, L)`."""
        first = values.shape[1] - self.horizon
        last = values[:, first - 1 : first]
        return values[:, first - self.back : first] - last, last, values[:, first:]
