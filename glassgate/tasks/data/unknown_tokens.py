"""The fraction of input tokens that are not in the vocabulary of a run, and a note if it is large."""

from collections.abc import Sequence

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.vocabulary import UNKNOWN

MIN_NOTED_FRACTION = 0.3
"""If at least this fraction of the tokens is unknown, the data is probably of another kind or language."""
_BLOCK_SIZE = 2**20  # tokens that are read at once


def unknown_fraction(field: str, encoded: Sequence[Encoded]) -> float | None:
    """Return the fraction of the input tokens that are not in the vocabulary of a run.

    Args:
        field: the field with the indices of the tokens
        encoded: the encoded examples

    Returns:
        the fraction; None without tokens, without the field, or if it has several values per step
    """
    unknown = total = 0
    for fields in encoded:
        indices = fields.get(field)
        if indices is None or indices.ndim != 1:
            return None
        total += len(indices)
        for start in range(0, len(indices), _BLOCK_SIZE):  # a large text is read from disk in blocks
            unknown += int((indices[start : start + _BLOCK_SIZE] == UNKNOWN).sum())
    return unknown / total if total else None


def unknown_tokens_note(fraction: float | None, data: str) -> str:
    """Return a sentence about data with many unknown tokens; empty if there are few.

    Args:
        fraction: the fraction of unknown tokens; None without tokens
        data: the name of the data in the sentence

    Example:
        >>> unknown_tokens_note(0.05, "test.tsv"), unknown_tokens_note(0.81, "test.tsv").split(":")[0]
        ('', '81% of the tokens of test.tsv are not in the training data')
    """
    if fraction is None or fraction < MIN_NOTED_FRACTION:
        return ""
    return (
        f"{fraction:.0%} of the tokens of {data} are not in the training data: check that its language, case and "
        "tokens (words, characters, punctuation) are those of the training data"
    )
