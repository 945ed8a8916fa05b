"""Metrics that torchmetrics lacks, and scores per label.

In each `update`, targets that do not count, such as padding and missing labels, are negative or masked.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

LabelScores = dict[str, float]
"""Precision, recall and F1, from 0 to 1, and support, the number of times that the label occurs."""

_MAX_TABLE_ROWS = 60


class Sums(Metric):
    """A metric that is computed from sums over all batches and processes.

    Args:
        zeros: the initial value of each sum, by the name of its attribute
    """

    full_state_update = False

    def __init__(self, **zeros: Tensor) -> None:
        super().__init__()
        for name, zero in zeros.items():
            self.add_state(name, zero.clone(), dist_reduce_fx="sum")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tensor: ...


class Likelihood(Sums):
    """Nats and bits per token, and perplexity, from the probabilities of the correct tokens.

    Args:
        per_token: whether to return bits and perplexity, too; for sets of notes, nats per step are usual

    Example:
        >>> metric = Likelihood()
        >>> metric.update(torch.tensor([0.5, 0.25]).log().neg(), torch.tensor([True, True]))
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'nats': 1.04, 'bits': 1.5, 'perplexity': 2.828}
    """

    def __init__(self, per_token: bool = True) -> None:
        super().__init__(total=torch.tensor(0.0, dtype=torch.float64), tokens=torch.tensor(0))
        self.per_token = per_token

    def update(self, nats: Tensor, mask: Tensor) -> None:
        """Add a batch: the negative log-likelihood of each token in nats, and the mask of the tokens that count."""
        self.total += nats.where(mask, 0.0).double().sum()
        self.tokens += mask.sum()

    def compute(self) -> dict[str, Tensor]:
        """Return the means over all tokens; the perplexity is e to the power of the nats."""
        nats = self.total / self.tokens
        if not self.per_token:
            return {"nats": nats}
        return {"nats": nats, "bits": nats / math.log(2), "perplexity": nats.exp()}


class NoteF1(Sums):
    """F1 of predicted notes over all keys and steps: 2 TP / (2 TP + FP + FN), as for multi-pitch estimation.

    Example:
        >>> metric = NoteF1()
        >>> metric.update(torch.tensor([[[True, True]]]), torch.tensor([[[True, False]]]), torch.tensor([[True]]))
        >>> round(float(metric.compute()), 3)
        0.667
    """

    def __init__(self) -> None:
        super().__init__(correct=torch.tensor(0), notes_in_both=torch.tensor(0))

    def update(self, notes: Tensor, true_notes: Tensor, mask: Tensor) -> None:
        """Add a batch: predicted and true notes, (..., L, keys), and the mask of the steps that count, (..., L)."""
        counted = mask[..., None]
        self.correct += (notes & true_notes & counted).sum()
        self.notes_in_both += (notes & counted).sum() + (true_notes & counted).sum()

    def compute(self) -> Tensor:
        """Return the score, from 0 to 1; 1 if neither the data nor the prediction contains a note."""
        return torch.where(self.notes_in_both > 0, 2 * self.correct / self.notes_in_both, 1.0)


class Fraction(Sums):
    """The fraction of correct predictions; NaN without predictions. Unlike torchmetrics, it never waits for a GPU."""

    def __init__(self) -> None:
        super().__init__(correct=torch.tensor(0), total=torch.tensor(0))

    def count(self, correct: Tensor, mask: Tensor) -> None:
        """Add a batch of predictions: the mask of the correct ones, and the mask of those that count."""
        self.correct += (correct & mask).sum()
        self.total += mask.sum()

    def compute(self) -> Tensor:
        return self.correct / self.total


class Accuracy(Fraction):
    """The fraction of targets that are predicted correctly."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch of predicted and true labels of the same shape; `target` is negative where it does not count."""
        self.count(preds == target, target >= 0)


class LabelCounts(Sums):
    """Counts, per label, of correct predictions, predictions and targets, from which precision, recall and F1 follow.

    Args:
        names: the names of the labels, in the order of their indices
        sums: the initial values of further sums

    Attributes:
        kind: the kind of the labels: "label", "entity" or "intent"
    """

    kind: ClassVar[str] = "label"

    def __init__(self, names: Sequence[str], **sums: Tensor):
        zeros = torch.zeros(len(names), dtype=torch.long)
        super().__init__(correct=zeros, predicted=zeros, true=zeros, **sums)
        self.names = list(names)

    def count(self, preds: Tensor, target: Tensor, pred_mask: Tensor, target_mask: Tensor, correct: Tensor) -> None:
        """Add a batch. All arguments have the same shape.

        Args:
            preds, target: the predicted and the true labels, as indices
            pred_mask, target_mask: the masks of the predictions and of the targets that count
            correct: the mask of correct predictions
        """
        for counts, labels, mask in (
            (self.correct, target, correct), (self.predicted, preds, pred_mask), (self.true, target, target_mask)
        ):  # fmt: skip
            # `bincount` and indexing by a mask would make the process wait for the GPU.
            counts.index_add_(0, labels.where(mask, 0).flatten(), mask.flatten().to(counts.dtype))

    def by_label(self) -> dict[str, LabelScores]:
        """Return the scores of each label that is a target or was predicted, the most frequent target first."""
        rows = zip(self.names, self.correct.tolist(), self.predicted.tolist(), self.true.tolist(), strict=True)
        scores = {
            name: {
                "precision": correct / max(1, predicted),
                "recall": correct / max(1, true),
                "f1": 2 * correct / (predicted + true),
                "support": true,
            }
            for name, correct, predicted, true in rows
            if predicted + true
        }
        return dict(sorted(scores.items(), key=lambda row: (-row[1]["support"], row[0])))


def by_label(metrics: MetricCollection) -> dict[str, dict[str, LabelScores]]:
    """Return the scores per label of each metric that counts by label, under "label", "entity" or "intent"."""
    return {each.kind: each.by_label() for each in metrics.values() if isinstance(each, LabelCounts)}


def label_table(kind: str, scores: Mapping[str, LabelScores]) -> str:
    """Return scores per label as a table of percentages.

    Example:
        >>> print(label_table("label", {"NOUN": {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "support": 4}}))
        label  precision   recall       f1  support
        NOUN      50.00%  100.00%   66.67%        4
    """
    shown = list(scores.items())[:_MAX_TABLE_ROWS]
    width = max(map(len, [kind, *(name for name, _ in shown)]))
    lines = [f"{kind:{width}}  precision   recall       f1  support"]
    for name, each in shown:
        row = f"{each['precision']:11.2%}{each['recall']:9.2%}{each['f1']:9.2%}{each['support']:9,}"
        lines.append(f"{name:{width}}{row}")
    if len(scores) > _MAX_TABLE_ROWS:
        lines.append(f"and {len(scores) - _MAX_TABLE_ROWS} more; --json prints all")
    return "\n".join(lines)


class MacroF1(LabelCounts):
    """The mean F1 of the labels that are targets or were predicted.

    Its memory grows linearly with the number of labels. The metric of torchmetrics needs quadratic memory, which
    is too much if a column of many thousands of different values is read as labels by mistake.
    """

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch of predicted and true labels of the same shape; `target` is negative where it does not count."""
        mask = target >= 0
        self.count(preds, target, mask, mask, mask & (preds == target))

    def compute(self) -> Tensor:
        """Return the mean; NaN without labels."""
        counts = self.predicted + self.true
        return (2.0 * self.correct.double() / counts)[counts > 0].mean()
