"""A linear map of the values of a series, fitted by ridge regression before training, which the network corrects."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassgate.tasks.networks.ridge import MAX_VALUES, MAX_WEIGHTS, ridge


class StepRidge(NamedTuple):
    """A linear map of the values of a series of L steps and C channels to K outputs.

    Attributes:
        weight: `(L, C, K)`
        bias: the output for zeros, divided among the steps, `(L, K)`
    """

    weight: np.ndarray
    bias: np.ndarray


def step_ridge(series: Sequence[np.ndarray], targets: np.ndarray) -> StepRidge | None:
    """Return the ridge regression of targets on the values of each step; None without one.

    Each value is standardised over the series. A step's part is therefore zero for its mean values, and a missing step
    is treated as if it had these. Of many series, evenly spaced ones are read.

    Args:
        series: `(L, C)` each. The result is None for fewer than three, and for different shapes
        targets: `(N, K)`; the map predicts their differences from their means

    Example:
        >>> series = np.random.default_rng(0).normal(size=(20, 3, 1))
        >>> step_ridge(series, series[:, 1] - series[:, 2]).weight[:, 0, 0].round(2).tolist()
        [0.0, 1.0, -1.0]
    """
    shape = series[0].shape
    are_equal = all(each.shape == shape for each in series)
    if len(series) < 3 or not are_equal or series[0].size * targets.shape[1] > MAX_WEIGHTS:
        return None
    from sklearn.preprocessing import StandardScaler

    every = -(-len(series) * series[0].size // MAX_VALUES)
    scaler = StandardScaler()
    values = scaler.fit_transform(np.stack(series[::every]).reshape(len(series[::every]), -1).astype(np.float64))
    weight = ridge(values, targets[::every]).weight / scaler.scale_[:, None]
    weight[np.ptp(values, 0) == 0] = 0.0  # constant values
    bias = -(weight * scaler.mean_[:, None]).reshape(*shape, -1).sum(1)
    return StepRidge(weight.reshape(*shape, -1), bias)


class StepScores(nn.Module):
    """A fixed linear map of a series to K outputs, as the sum of a part for each step.

    Steps beyond those of the training series have no part.

    Args:
        weight: `(L, C, K)`
        bias: `(L, K)`
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor):
        super().__init__()
        self.register_buffer("weight", F.pad(weight, (0, 0, 0, 0, 0, 1)), persistent=False)  # zeros for further steps
        self.register_buffer("bias", F.pad(bias, (0, 0, 0, 1)), persistent=False)

    def forward(self, steps: Tensor, mask: Tensor) -> Tensor:
        """Return the part of each step, `(N, L, K)`, of series, `(N, L, C)`, with a mask of steps, `(N, L)`."""
        index = torch.arange(steps.shape[1], device=steps.device).clamp(max=len(self.weight) - 1)
        parts = (steps[..., None] * self.weight[index]).sum(2) + self.bias[index]
        return parts * mask[..., None]
