"""Regression as an ONNX model: from tokens or the steps of a series to numbers in units of the data."""

import torch
from torch import Tensor, nn

from glassgate.tasks.onnx_models import inputs
from glassgate.tasks.onnx_models.models import Exported, Model
from glassgate.tasks.regression.network import Regressor
from glassgate.tasks.regression.task import Regression


class _Numbers(nn.Module):
    """The network as a function of tensors.

    Args:
        network: the network.
        scale: the mean and the standard deviation of each channel of a series, (2, C); None for texts.
        targets: the mean and the standard deviation of each number, (2, K).
    """

    scale: Tensor | None
    targets: Tensor

    def __init__(self, network: Regressor, scale: Tensor | None, targets: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("scale", scale)
        self.register_buffer("targets", targets)

    def forward(self, steps: Tensor, lengths: Tensor) -> Tensor:
        """The numbers (N, K)."""
        mean, deviation = self.targets
        numbers: Tensor = self.network(inputs.batch(steps, lengths, self.scale)) * deviation + mean
        return numbers


def exported(task: Regression) -> Exported:
    """The model; it standardises series and scales the predicted numbers."""
    scale = torch.tensor(task.facts["series"]) if "series" in task.facts else None
    axes, draw = inputs.sequences(len(task.vocabularies["units"]) if scale is None else 0, scale)
    assert isinstance(task.network, Regressor)
    module = _Numbers(task.network, scale, torch.tensor(task.facts["numbers"]))
    return Exported([Model(module, axes, draw, ["numbers"])])
