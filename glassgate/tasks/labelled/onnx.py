"""Classification and regression as an ONNX model, from a text or a series to probabilities or numbers."""

from typing import Any

import torch
from torch import Tensor

from glassgate.tasks.labelled.network import SequenceNetwork
from glassgate.tasks.labelled.task import LabelledTask
from glassgate.tasks.onnx.models import Function, Model, random_indices


class _Answers(Function[SequenceNetwork]):
    """The network as a function of tensors.

    Attributes:
        scale, target_scale: the mean and the standard deviation of each channel of the series, `(2, C)`, and of each
            predicted number, `(2, K)`; None for texts and for labels
    """

    scale: Tensor | None
    target_scale: Tensor | None

    def __init__(self, task: LabelledTask[Any, Any]) -> None:
        super().__init__(task.network)
        scales = {"scale": task.series_scale, "target_scale": task.fitted.get("numbers")}
        for name, scale in scales.items():
            self.register_buffer(name, None if scale is None else torch.tensor(scale))

    def forward(self, steps: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """Return numbers, or the probability of each label, (N, K); with attention pooling also the weights, (N, L)."""
        if self.scale is None:
            output = self.network({"units": steps, "lengths": lengths})
        else:
            output = self.network({"series": (steps - self.scale[0]) / self.scale[1], "lengths": lengths})
        if self.target_scale is None:
            probabilities = output.values.softmax(-1)
            return (probabilities,) if output.attention is None else (probabilities, output.attention)
        mean, deviation = self.target_scale
        return (output.values * deviation + mean,)


def export(task: LabelledTask[Any, Any]) -> list[Model]:
    """Return the ONNX model, which standardises series itself and returns numbers in units of the data."""
    module = _Answers(task)

    def random_inputs(N: int, L: int) -> tuple[Tensor, Tensor]:
        if module.scale is None:
            return random_indices(N, L, len(task.vocabularies["units"]))
        _, lengths = random_indices(N, L, 3)
        return module.scale[0] + module.scale[1] * torch.randn(N, L, module.scale.shape[1]), lengths

    outputs = ["numbers" if task.predicts_numbers else "probabilities"]
    outputs += ["attention"] if task.pooling == "attention" else []
    axes = {"units": "N L"} if module.scale is None else {"series": "N L *"}
    return [Model(module, axes | {"lengths": "N"}, random_inputs, outputs)]
