"""Metrics of tagging: scores of entities, of whole tokens of code, and of sequences with an intent."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.tasks.data.bio import BIO_LABEL
from glassgate.tasks.metrics.scores import Fraction, LabelCounts

_OUTSIDE, _INSIDE = 0, 2
_BIO_KINDS = {"O": _OUTSIDE, "B": 1, "I": _INSIDE}


class EntityScores(LabelCounts):
    """Precision, recall and F1 of whole entities as `conlleval` counts them (Tjong Kim Sang and Buchholz 2000).

    An entity is correct if its first token, its last token and its type are correct. I-X begins an entity unless it
    continues one of type X. Labels that are not in BIO form are outside of entities.

    Example:
        >>> metric = EntityScores(["O", "B-PER", "I-PER"])
        >>> metric.update(torch.tensor([[1, 2, 0, 1]]), torch.tensor([[1, 2, 0, 0]]))
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'precision': 0.5, 'recall': 1.0, 'f1': 0.667}
        >>> metric.by_label()["PER"]["support"]
        1
    """

    kind = "entity"

    def __init__(self, label_names: Sequence[str]):
        types = sorted({label[1:] for label in label_names})
        super().__init__([type.removeprefix("-") or "entity" for type in types])
        kinds = [_BIO_KINDS[label[0]] if BIO_LABEL.fullmatch(label) else _OUTSIDE for label in label_names]
        self.register_buffer("bio_kinds", torch.tensor(kinds), persistent=False)
        self.register_buffer("types", torch.tensor([types.index(label[1:]) for label in label_names]), persistent=False)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch of labels, both `(N, L)`; `target` is negative at padding."""
        is_padding = target < 0
        predicted, predicted_ends, predicted_types = self._entities(preds, is_padding)
        true, true_ends, true_types = self._entities(target, is_padding)
        is_same = (predicted_ends == true_ends) & (predicted_types == true_types)
        self.count(predicted_types, true_types, predicted, true, predicted & true & is_same)

    def compute(self) -> dict[str, Tensor]:
        """Return the scores over the entities of all types; they are 0 without entities."""
        correct, predicted, true = self.correct.sum().double(), self.predicted.sum(), self.true.sum()
        return {
            "precision": correct / predicted.clamp(min=1),
            "recall": correct / true.clamp(min=1),
            "f1": 2 * correct / (predicted + true).clamp(min=1),
        }

    def _entities(self, labels: Tensor, is_padding: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whether an entity begins at each token, the position of its last token, and its type, all `(N, L)`."""
        labels = labels.masked_fill(is_padding, 0)
        kinds = self.bio_kinds[labels].masked_fill(is_padding, _OUTSIDE)
        types = self.types[labels]
        continues = torch.zeros_like(is_padding)
        continues[:, 1:] = (kinds[:, 1:] == _INSIDE) & (kinds[:, :-1] != _OUTSIDE) & (types[:, 1:] == types[:, :-1])
        begins = (kinds != _OUTSIDE) & ~continues
        positions = torch.arange(labels.shape[1], device=labels.device).expand_as(labels)
        is_last = torch.ones_like(is_padding)
        is_last[:, :-1] = ~continues[:, 1:]
        ends = positions.where(is_last, labels.shape[1]).flip(1).cummin(1).values.flip(1)
        return begins, ends, types


class WholeTokens(Fraction):
    """The fraction of tokens of code whose characters all have the correct label.

    Example:
        >>> metric = WholeTokens()
        >>> metric.update(torch.tensor([[1, 1, 2]]), torch.tensor([[1, 1, 1]]), torch.tensor([[0, 0, 1]]))
        >>> metric.compute()
        tensor(0.5000)
    """

    def update(self, preds: Tensor, target: Tensor, tokens: Tensor) -> None:
        """Add a batch of characters: their labels, and the number of their token in the row, or -1, all `(N, L)`."""
        is_in_token = tokens >= 0
        indices = tokens.clamp(min=0)
        num_characters, num_wrong = (
            torch.zeros_like(tokens).scatter_add_(1, indices, mask.to(tokens.dtype))
            for mask in (is_in_token, is_in_token & (preds != target))
        )
        self.count(num_wrong == 0, num_characters > 0)


class FrameAccuracy(LabelCounts):
    """The fraction of sequences with the correct intent, and the fraction with the correct intent and labels.

    Example:
        >>> metric = FrameAccuracy(["book", "play"])
        >>> intents = torch.tensor([0, 1])
        >>> metric.update(torch.tensor([[1, 1], [1, 0]]), torch.tensor([[1, 2], [1, -100]]), intents, intents)
        >>> {name: float(value) for name, value in metric.compute().items()}
        {'intent_accuracy': 1.0, 'frame_accuracy': 0.5}
    """

    kind = "intent"

    def __init__(self, names: Sequence[str]):
        super().__init__(names, correct_frames=torch.tensor(0), sequences=torch.tensor(0))

    def update(self, preds: Tensor, target: Tensor, intents: Tensor, true_intents: Tensor) -> None:
        """Add a batch of labels, both `(N, L)`, and of intents, `(N,)`; `target` is negative at padding."""
        is_correct, has_intent = intents == true_intents, true_intents >= 0
        self.count(intents, true_intents, has_intent, has_intent, is_correct & has_intent)
        self.correct_frames += (is_correct & ((preds == target) | (target < 0)).all(1)).sum()
        self.sequences += len(is_correct)

    def compute(self) -> dict[str, Tensor]:
        """Return the two fractions."""
        return {
            "intent_accuracy": self.correct.sum() / self.sequences,
            "frame_accuracy": self.correct_frames / self.sequences,
        }
