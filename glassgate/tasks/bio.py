"""Labels in BIO form: B-X begins an entity of type X, I-X goes on with it, O is outside; IOB2 in the CoNLL files."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from glassgate.tasks.scores import LabelCounts

_FORM = re.compile(r"O|[BI](-.+)?")
_MARK = re.compile(r"O|[BILUESM]-.+")
_IN_IOB2 = {"U": "B", "S": "B", "L": "I", "E": "I", "M": "I"}
_OUTSIDE, _BEGINS, _INSIDE = 0, 1, 2
_KINDS = {"O": _OUTSIDE, "B": _BEGINS, "I": _INSIDE}


def is_bio(labels: Iterable[str]) -> bool:
    """Whether all labels have the form, and some begin an entity.

    Example:
        >>> is_bio(["O", "B-PER", "I-PER"]), is_bio(["NOUN", "VERB"])
        (True, False)
    """
    labels = set(labels)
    return all(_FORM.fullmatch(label) for label in labels) and any(label[0] == "B" for label in labels)


def scheme_of(sequences: Iterable[Sequence[str]], in_order: bool = True) -> str:
    """Return how labels mark entities: "IOB2", "IOB1", "BIOES", "BILUO" or "BMES"; empty if they mark none.

    Labels of which some entities begin with I-X, as IOB1 has it, and others with B-X needlessly, are taken for IOB2.

    Args:
        sequences: labels, those of a sequence together
        in_order: whether the order within a sequence says something

    Example:
        >>> scheme_of([["I-PER", "I-PER", "O"]]), scheme_of([["B-PER", "L-PER", "U-LOC"]]), scheme_of([["NOUN"]])
        ('IOB1', 'BILUO', '')
    """
    sequences = [list(sequence) for sequence in sequences]
    labels = {label for sequence in sequences for label in sequence}
    if not all(_MARK.fullmatch(label) for label in labels) or labels <= {"O"}:
        return ""
    letters = {label[0] for label in labels}
    for scheme, own in (("BILUO", "LU"), ("BMES", "M"), ("BIOES", "ES")):
        if letters & set(own):
            return scheme if letters <= {*scheme, "O"} else ""
    pairs = [pair for sequence in sequences for pair in pairwise(["O", *sequence])]
    needless = any(label[0] == "B" and (before == "O" or before[1:] != label[1:]) for before, label in pairs)
    begins_inside = any(not may_follow(before, label) for before, label in pairs)
    if in_order and begins_inside and not needless:
        return "IOB1"
    return "IOB2"


def to_iob2(labels: Sequence[str], scheme: str) -> list[str]:
    """Write labels of another scheme in IOB2.

    Example:
        >>> to_iob2(["B-PER", "L-PER", "U-LOC", "O"], "BILUO")
        ['B-PER', 'I-PER', 'B-LOC', 'O']
        >>> to_iob2(["I-PER", "I-PER", "B-PER"], "IOB1")
        ['B-PER', 'I-PER', 'B-PER']
    """
    if scheme == "IOB1":
        pairs = pairwise([None, *labels])
        return [label if may_follow(before, label) else f"B{label[1:]}" for before, label in pairs if label is not None]
    if scheme in ("BIOES", "BILUO", "BMES"):
        return [_IN_IOB2.get(label[0], label[0]) + label[1:] for label in labels]
    return list(labels)


def may_follow(before: str | None, label: str) -> bool:
    """Whether a label may follow another one, or be the first (None): I-X only continues an entity of type X.

    Example:
        >>> may_follow("B-PER", "I-PER"), may_follow("B-LOC", "I-PER"), may_follow(None, "I-PER")
        (True, False, False)
    """
    return label[0] != "I" or (before is not None and before[0] != "O" and before[1:] == label[1:])


def is_valid(labels: Sequence[str]) -> bool:
    """Whether each label may follow the previous one."""
    return all(may_follow(before, label) for before, label in pairwise([None, *labels]) if label is not None)


def penalties(labels: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return what keeps paths valid, 0 or -inf: of each label at the start, `(K,)`, and behind each other, `(K, K)`."""
    start = [[may_follow(None, label) for label in labels]]
    follow = [[may_follow(before, label) for label in labels] for before in labels]
    allowed = torch.tensor(start + follow)
    values = torch.zeros(allowed.shape).masked_fill(~allowed, -torch.inf)
    return values[0], values[1:]


class EntityScores(LabelCounts):
    """Precision, recall and F1 of whole entities as `conlleval` counts them (Tjong Kim Sang and Buchholz 2000).

    An entity is correct if its first unit, its last unit and its type are. I-X begins one unless it continues type X.

    Args:
        labels: all of them, in the order of their numbers; one of another form is outside of entities

    Example:
        >>> metric = EntityScores(["O", "B-PER", "I-PER"])
        >>> metric.update(torch.tensor([[1, 2, 0, 1]]), torch.tensor([[1, 2, 0, 0]]))
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'precision': 0.5, 'recall': 1.0, 'f1': 0.667}
        >>> metric.by_label()["PER"]["support"]
        1
    """

    counted = "entity"

    def __init__(self, labels: Sequence[str]):
        types = sorted({label[1:] for label in labels})
        super().__init__([type.removeprefix("-") or "entity" for type in types])
        self.kinds = torch.tensor([_KINDS[label[0]] if _FORM.fullmatch(label) else _OUTSIDE for label in labels])
        self.types = torch.tensor([types.index(label[1:]) for label in labels])

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch: both `(N, L)`, `target` negative at padding."""
        none = target < 0
        found, found_ends, found_types = self._entities(preds, none)
        wanted, wanted_ends, wanted_types = self._entities(target, none)
        same = (found_ends == wanted_ends) & (found_types == wanted_types)
        self.count(wanted_types[found & wanted & same], found_types[found], wanted_types[wanted])

    def compute(self) -> dict[str, Tensor]:
        """Return the scores over all types, 0 without entities."""
        right, found, wanted = self.right.sum().double(), self.found.sum(), self.wanted.sum()
        return {
            "precision": right / found.clamp(min=1),
            "recall": right / wanted.clamp(min=1),
            "f1": 2 * right / (found + wanted).clamp(min=1),
        }

    def _entities(self, labels: Tensor, none: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where entities begin, where each ends that begins here, and each unit's type: all `(N, L)`."""
        labels = labels.masked_fill(none, 0)
        kinds = self.kinds.to(labels.device)[labels].masked_fill(none, _OUTSIDE)
        types = self.types.to(labels.device)[labels]
        goes_on = torch.zeros_like(none)
        goes_on[:, 1:] = (kinds[:, 1:] == _INSIDE) & (kinds[:, :-1] != _OUTSIDE) & (types[:, 1:] == types[:, :-1])
        begins = (kinds != _OUTSIDE) & ~goes_on
        places = torch.arange(labels.shape[1], device=labels.device).expand_as(labels)
        last = torch.ones_like(none)
        last[:, :-1] = ~goes_on[:, 1:]
        ends = places.where(last, labels.shape[1]).flip(1).cummin(1).values.flip(1)
        return begins, ends, types
