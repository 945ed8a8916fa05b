"""Labels of dev and test data that the training data lacks. No model can predict them, so each counts as an error."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from glassgate.tasks.data.corpus import Corpus
from glassgate.tasks.data.vocabulary import Vocabulary
from glassgate.tasks.wording import plural, shortened_list

UNLABELLED = -100
"""The index of a missing label; losses and scores ignore it."""


def unknown_labels(
    targets: Mapping[str, str], vocabularies: Mapping[str, Vocabulary], examples: Corpus[Any]
) -> dict[str, dict[str, int]]:
    """Return the counts of the labels that the training data lacks, by the name of their vocabulary.

    Args:
        targets: the attributes of an example that are labels, each with the name of its vocabulary
        vocabularies: the vocabularies of the training data
        examples: the examples to check
    """
    counts_by_vocabulary = {}
    for field, name, vocabulary in _label_fields(targets, vocabularies, examples):
        if not examples.has_unknown(field, vocabulary.__contains__):
            continue
        unknown = {label: count for label, count in _label_counts(examples, field).items() if label not in vocabulary}
        if unknown:
            counts_by_vocabulary[name] = unknown
    return counts_by_vocabulary


def unknown_label_warnings(
    targets: Mapping[str, str], vocabularies: Mapping[str, Vocabulary], examples: Corpus[Any], data: str
) -> list[str]:
    """Return a warning for each vocabulary with unknown labels; see `unknown_labels`.

    Args:
        data: a description of the examples, which begins the warning
    """
    unknown = unknown_labels(targets, vocabularies, examples)
    return [
        f"{data} has {plural(len(unknown[name]), name[:-1])} that the training data lacks, "
        f"{_with_counts(unknown[name])}, so {sum(unknown[name].values()):,} of "
        f"{sum(_label_counts(examples, field).values()):,} answers must be wrong; check with `glassgate look` "
        "that the right column is read, or train with examples of each"
        for field, name, _ in _label_fields(targets, vocabularies, examples)
        if name in unknown
    ]


def mask_unknown(indices: Tensor, num_labels: int) -> Tensor:
    """Replace the indices of unknown labels by `UNLABELLED`.

    Args:
        indices: the indices of labels
        num_labels: the number of labels of the training data
    """
    return indices.where(indices < num_labels, UNLABELLED)


def _label_fields(
    targets: Mapping[str, str], vocabularies: Mapping[str, Vocabulary], examples: Corpus[Any]
) -> Iterator[tuple[str, str, Vocabulary]]:
    """The label fields that the examples have, each with the name of its vocabulary and the vocabulary."""
    for field, name in targets.items() if len(examples) else ():
        if field in examples.fields and name in vocabularies:
            yield field, name, vocabularies[name]


def _label_counts(examples: Corpus[Any], field: str) -> dict[str, int]:
    """The count of each label."""
    return {label: count for label, count in examples.counts(field).items() if label is not None}


def _with_counts(labels: Mapping[str, int]) -> str:
    most_frequent = sorted(labels, key=lambda label: (-labels[label], label))
    return shortened_list([f"{label} ({plural(labels[label], 'time')})" for label in most_frequent], 6)
