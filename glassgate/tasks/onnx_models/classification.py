"""Classification as an ONNX model: from tokens or the steps of a series to the probabilities of labels."""

import torch
from torch import Tensor, nn

from glassgate.tasks.classification.network import Classifier
from glassgate.tasks.classification.task import Classification
from glassgate.tasks.onnx_models import inputs
from glassgate.tasks.onnx_models.models import Exported, Model


class _Probabilities(nn.Module):
    """The network as a function of tensors.

    Args:
        network: the network.
        scale: the mean and the standard deviation of each channel of a series, (2, C); None for texts.
    """

    scale: Tensor | None

    def __init__(self, network: Classifier, scale: Tensor | None) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("scale", scale)

    def forward(self, steps: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """The probability of each label (N, K); with attention also the weight of each step (N, L)."""
        scores = self.network(inputs.batch(steps, lengths, self.scale))
        chances = scores.labels.softmax(-1)
        return (chances,) if scores.attention is None else (chances, scores.attention)


def exported(task: Classification) -> Exported:
    """The model; it standardises series."""
    facts = task.facts
    scale = torch.tensor([facts["mean"], facts["deviation"]]) if facts else None
    axes, draw = inputs.sequences(len(task.vocabularies["units"]) if scale is None else 0, scale)
    outputs = ["probabilities", *(["attention"] if task.options.pooling == "attention" else [])]
    assert isinstance(task.network, Classifier)
    return Exported([Model(_Probabilities(task.network, scale), axes, draw, outputs)])
