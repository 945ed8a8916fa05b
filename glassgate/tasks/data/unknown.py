"""Labels and tokens that the training data lacks: counts and warnings.

No model can predict such labels, so each counts as an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.corpus import Corpus
from glassgate.tasks.data.vocabulary import UNKNOWN, Vocabulary
from glassgate.tasks.wording import plural, shortened_list

UNLABELLED = -100
"""The index of a missing label; losses and scores ignore it."""
MIN_NOTED_FRACTION = 0.3
"""If at least this fraction of the tokens is unknown, the data is probably of another kind or language."""
_BLOCK_SIZE = 2**20  # tokens that are read at once


def unknown_labels(
    targets: Mapping[str, str], vocabularies: Mapping[str, Vocabulary], examples: Corpus[Any]
) -> dict[str, dict[str, int]]:
    """Return the counts of the labels that the training data lacks, by the name of their vocabulary.

    `targets` are the attributes of an example that are labels, each with the name of its vocabulary.
    """
    unknown = {}
    for field, name in targets.items() if len(examples) else ():
        vocabulary = vocabularies.get(name)
        if field not in examples.fields or vocabulary is None:
            continue
        if examples.has_unknown(field, vocabulary.__contains__):
            counts = examples.counts(field)
            unknown[name] = {label: count for label, count in counts.items() if label not in vocabulary}
    return {name: counts for name, counts in unknown.items() if counts}


def unknown_label_warnings(
    targets: Mapping[str, str], vocabularies: Mapping[str, Vocabulary], examples: Corpus[Any], data: str
) -> list[str]:
    """Return a warning for each vocabulary with unknown labels, which begins with `data`, a description."""
    unknown = unknown_labels(targets, vocabularies, examples)
    return [
        f"{data} has {plural(len(unknown[name]), name[:-1])} that the training data lacks, "
        f"{_with_counts(unknown[name])}, so {sum(unknown[name].values()):,} of "
        f"{examples.counts(field).total():,} answers must be wrong; check with `glassgate look` "
        "that the right column is read, or train with examples of each"
        for field, name in targets.items()
        if name in unknown
    ]


def mask_unknown(indices: Tensor, num_labels: int) -> Tensor:
    """Replace the indices of unknown labels, those from `num_labels` of the training data on, by `UNLABELLED`."""
    return indices.where(indices < num_labels, UNLABELLED)


def _with_counts(labels: Mapping[str, int]) -> str:
    most_frequent = sorted(labels, key=lambda label: (-labels[label], label))
    return shortened_list([f"{label} ({plural(labels[label], 'time')})" for label in most_frequent], 6)


def unknown_fraction(field: str, encoded: Sequence[Encoded]) -> float | None:
    """Return the fraction of the indices in a field that are those of unknown tokens.

    It is None without tokens, without the field, or if the field has several values per step.
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
    """Return a sentence about data, given its name, with many unknown tokens; empty if there are few.

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
