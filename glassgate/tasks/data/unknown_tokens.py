"""The fraction of input tokens that the training data lacks, and a warning if it is large."""

from collections.abc import Sequence

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.vocabulary import UNKNOWN

MANY = 0.3
"""With a larger fraction of unknown tokens, the data is probably of another kind or language."""
_AT_ONCE = 2**20


def unknown_fraction(field: str, encoded: Sequence[Encoded]) -> float | None:
    """Return the fraction of the input tokens that the vocabulary of a run lacks.

    Args:
        field: the field of the tokens
        encoded: the examples

    Returns:
        the fraction; None if the field is missing or holds several numbers per step
    """
    unknown = total = 0
    for fields in encoded:
        numbers = fields.get(field)
        if numbers is None or numbers.ndim != 1:
            return None
        total += len(numbers)
        for start in range(0, len(numbers), _AT_ONCE):  # a large text is read from disk in parts
            unknown += int((numbers[start : start + _AT_ONCE] == UNKNOWN).sum())
    return unknown / total if total else None


def note_on(fraction: float | None, data: str) -> str:
    """Return a sentence about data with many unknown tokens; an empty one if there are few.

    Args:
        fraction: the fraction of unknown tokens; None if there are no tokens
        data: the name of the data in the sentence

    Example:
        >>> note_on(0.05, "test.tsv"), note_on(0.81, "test.tsv").split(":")[0]
        ('', '81% of the tokens of test.tsv are not in the training data')
    """
    if fraction is None or fraction < MANY:
        return ""
    return (
        f"{fraction:.0%} of the tokens of {data} are not in the training data: check that its language, case and "
        "tokens (words, characters, punctuation) are those of the training data"
    )
