"""Regression as an ONNX model, from a text or a series to numbers in units of the data."""

import torch
from torch import Tensor

from glassgate.tasks.onnx.models import LabelledNetwork, Model
from glassgate.tasks.regression.task import Regression


class _Numbers(LabelledNetwork):
    """Maps texts or series to K numbers each.

    Attributes:
        target_scale: the mean and the standard deviation of each number in the training data, (2, K)
    """

    target_scale: Tensor

    def __init__(self, task: Regression) -> None:
        super().__init__(task)
        self.register_buffer("target_scale", torch.tensor(task.fitted["numbers"]))

    def forward(self, steps: Tensor, lengths: Tensor) -> Tensor:
        """Return the numbers, (N, K)."""
        mean, deviation = self.target_scale
        numbers: Tensor = self.output(steps, lengths) * deviation + mean
        return numbers


def export(task: Regression) -> list[Model]:
    """Return the ONNX model, which standardises series itself and returns numbers in units of the data."""
    return [_Numbers(task).model(task, ["numbers"])]
