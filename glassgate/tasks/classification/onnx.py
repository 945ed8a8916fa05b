"""Classification as an ONNX model, from a text or a series to the probabilities of the labels."""

from torch import Tensor

from glassgate.tasks.classification.task import Classification
from glassgate.tasks.onnx.models import LabelledNetwork, Model


class _Probabilities(LabelledNetwork):
    """Maps texts or series to the probabilities of labels."""

    def forward(self, steps: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """Return the probability of each label, (N, K); with attention pooling also the weight of each step, (N, L)."""
        scores = self.output(steps, lengths)
        probabilities = scores.labels.softmax(-1)
        return (probabilities,) if scores.attention is None else (probabilities, scores.attention)


def export(task: Classification) -> list[Model]:
    """Return the ONNX model, which standardises series itself."""
    outputs = ["probabilities", *(["attention"] if task.options.pooling == "attention" else [])]
    return [_Probabilities(task).model(task, outputs)]
