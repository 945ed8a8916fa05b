"""Labels in BIO form (IOB2): B-X begins an entity of type X, I-X continues it, O is outside of entities."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

FORM = re.compile(r"O|[BI](-.+)?")
_MARK = re.compile(r"O|[BILUESM]-.+")
_IN_IOB2 = {"U": "B", "S": "B", "L": "I", "E": "I", "M": "I"}


def is_bio(labels: Iterable[str]) -> bool:
    """Whether all labels are in BIO form, and at least one begins an entity.

    Example:
        >>> is_bio(["O", "B-PER", "I-PER"]), is_bio(["NOUN", "VERB"])
        (True, False)
    """
    labels = set(labels)
    return all(FORM.fullmatch(label) for label in labels) and any(label[0] == "B" for label in labels)


def scheme_of(sequences: Iterable[Sequence[str]], in_order: bool = True) -> str:
    """Return the scheme of labels: "IOB2", "IOB1", "BIOES", "BILUO" or "BMES"; empty if they do not mark entities.

    If some entities begin with I-X, as in IOB1, and others with a B-X that IOB1 does not need, the scheme is IOB2.

    Args:
        sequences: the labels of each sequence
        in_order: whether the labels of a sequence are in their order

    Example:
        >>> scheme_of([["I-PER", "I-PER", "O"]]), scheme_of([["B-PER", "L-PER", "U-LOC"]]), scheme_of([["NOUN"]])
        ('IOB1', 'BILUO', '')
    """
    sequences = [list(sequence) for sequence in sequences]
    labels = {label for sequence in sequences for label in sequence}
    if not all(_MARK.fullmatch(label) for label in labels) or labels <= {"O"}:
        return ""
    letters = {label[0] for label in labels}
    for scheme, unique in (("BILUO", "LU"), ("BMES", "M"), ("BIOES", "ES")):
        if letters & set(unique):
            return scheme if letters <= {*scheme, "O"} else ""
    pairs = [pair for sequence in sequences for pair in pairwise(["O", *sequence])]
    needless = any(label[0] == "B" and (before == "O" or before[1:] != label[1:]) for before, label in pairs)
    begins_inside = any(not may_follow(before, label) for before, label in pairs)
    if in_order and begins_inside and not needless:
        return "IOB1"
    return "IOB2"


def scheme_note(scheme: str) -> str:
    """Describe the scheme of a label column, for messages.

    Example:
        >>> scheme_note("IOB2"), scheme_note("BILUO"), scheme_note("")
        (' (IOB2)', ' (BILUO, converted to IOB2)', '')
    """
    return {"": "", "IOB2": " (IOB2)"}.get(scheme, f" ({scheme}, converted to IOB2)")


def to_iob2(labels: Sequence[str], scheme: str) -> list[str]:
    """Convert labels of another scheme to IOB2.

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
