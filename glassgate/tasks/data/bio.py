"""Labels of entities in BIO form, also called IOB2, and conversion from other schemes to IOB2.

- IOB2: B-X begins an entity of type X, I-X continues it, and O is outside of entities.
- IOB1: like IOB2, but B-X is used only between two adjacent entities of one type. Other entities begin with I-X.
- BIOES, BILUO and BMES: like IOB2, with a separate letter (E or L) for the last token of an entity and another one
  (S or U) for an entity of a single token. In BMES, the tokens between the first and the last have the letter M.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

BIO_LABEL = re.compile(r"O|[BI](-.+)?")
_LABEL_OF_ANY_SCHEME = re.compile(r"O|[BILUESM]-.+")
_LETTERS_IN_IOB2 = {"U": "B", "S": "B", "L": "I", "E": "I", "M": "I"}


def is_bio(labels: Iterable[str]) -> bool:
    """Whether all labels are in BIO form, and at least one begins an entity."""
    labels = set(labels)
    return all(BIO_LABEL.fullmatch(label) for label in labels) and any(label[0] == "B" for label in labels)


def detect_scheme(sequences: Iterable[Sequence[str]], in_order: bool = True) -> str:
    """Return the scheme of labels: "IOB2", "IOB1", "BIOES", "BILUO" or "BMES"; empty if no label marks an entity.

    Mixed labels count as IOB2: some entities begin with I-X, and others with a B-X that IOB1 would not use.

    Args:
        sequences: the labels of each sequence
        in_order: whether the labels are in the order of the tokens; IOB1 is detected only if they are
    """
    sequences = [list(sequence) for sequence in sequences]
    labels = {label for sequence in sequences for label in sequence}
    if not all(_LABEL_OF_ANY_SCHEME.fullmatch(label) for label in labels) or labels <= {"O"}:
        return ""
    letters = {label[0] for label in labels}
    for scheme, unique_letters in (("BILUO", "LU"), ("BMES", "M"), ("BIOES", "ES")):
        if letters & set(unique_letters):
            return scheme if letters <= {*scheme, "O"} else ""
    pairs = [pair for sequence in sequences for pair in pairwise(["O", *sequence])]
    has_needless_b = any(label[0] == "B" and (before == "O" or before[1:] != label[1:]) for before, label in pairs)
    has_initial_i = any(not may_follow(before, label) for before, label in pairs)
    if in_order and has_initial_i and not has_needless_b:
        return "IOB1"
    return "IOB2"


def describe_scheme(scheme: str) -> str:
    """Describe the scheme of a label column, for messages, such as " (BILUO, converted to IOB2)"."""
    return {"": "", "IOB2": " (IOB2)"}.get(scheme, f" ({scheme}, converted to IOB2)")


def to_iob2(labels: Sequence[str], scheme: str) -> list[str]:
    """Convert labels of a scheme to IOB2.

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
        return [_LETTERS_IN_IOB2.get(label[0], label[0]) + label[1:] for label in labels]
    return list(labels)


def entity_type(label: str) -> str:
    """Return a label without the letter of its scheme, such as "PER" for "B-PER"."""
    return label[2:] if label[1:2] == "-" else label


def may_follow(before: str | None, label: str) -> bool:
    """Whether a label may follow another one or, if that is None, begin a sequence: I-X only continues an entity X."""
    return label[0] != "I" or (before is not None and before[0] != "O" and before[1:] == label[1:])


def is_valid(labels: Sequence[str]) -> bool:
    """Whether each label may follow the previous one."""
    return all(may_follow(before, label) for before, label in pairwise([None, *labels]) if label is not None)
