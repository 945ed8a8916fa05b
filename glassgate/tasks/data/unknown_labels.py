"""Labels that other data has and the training data lacked: no model can predict them, so each counts as an error."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from glassgate.tasks.data.store.examples import Stored, counts
from glassgate.tasks.data.vocabulary import Vocabulary
from glassgate.tasks.wording import plural, some

UNLABELLED = -100
"""The number of what has no label; neither losses nor scores count it."""


def unknown_labels(
    targets: Mapping[str, str], vocabularies: Mapping[str, Vocabulary], examples: Sequence[Any]
) -> dict[str, dict[str, int]]:
    """Return the counts of labels that the training data lacked, by the name of their vocabulary.

    Args:
        targets: the name of the vocabulary of each attribute of an example that is a label
        vocabularies: of the training data
        examples: other examples
    """
    found = {}
    for field, name, known in _answers(targets, vocabularies, examples):
        if isinstance(examples, Stored) and not examples.has_others(field, known.__contains__):
            continue
        new = {label: count for label, count in _met(examples, field).items() if label not in known}
        if new:
            found[name] = new
    return found


def unknown_label_warnings(
    targets: Mapping[str, str], vocabularies: Mapping[str, Vocabulary], examples: Sequence[Any], data: str
) -> list[str]:
    """Return a sentence for each kind of labels that the training data lacked; see `lacking`.

    Args:
        data: the name of the examples in the sentence
    """
    found = unknown_labels(targets, vocabularies, examples)
    return [
        f"{data} has {plural(len(found[name]), name[:-1])} that the training data lacks, {_counted(found[name])}, so "
        f"{sum(found[name].values()):,} of {sum(_met(examples, field).values()):,} answers must be wrong; see with "
        "`glassgate look` that the right column is read, or train with examples of each"
        for field, name, _ in _answers(targets, vocabularies, examples)
        if name in found
    ]


def without_unknown(numbers: Tensor, labels: int) -> Tensor:
    """The numbers of labels, those that the training data lacked as if there were no label.

    Args:
        labels: how many the training data has
    """
    return numbers.where(numbers < labels, UNLABELLED)


def _answers(
    targets: Mapping[str, str], vocabularies: Mapping[str, Vocabulary], examples: Sequence[Any]
) -> Iterator[tuple[str, str, Vocabulary]]:
    """The fields of labelled examples that hold labels, the names of their vocabularies, and these."""
    for field, name in targets.items() if len(examples) else ():
        there = field in examples.fields if isinstance(examples, Stored) else hasattr(examples[0], field)
        if there and name in vocabularies:
            yield field, name, vocabularies[name]


def _met(examples: Sequence[Any], field: str) -> dict[str, int]:
    """How often each label occurs."""
    all = counts(examples, field, lambda each: _several(getattr(each, field)))
    return {label: count for label, count in all.items() if label is not None}


def _several(value: str | Sequence[str] | None) -> Sequence[str | None]:
    return [value] if value is None or isinstance(value, str) else value


def _counted(labels: Mapping[str, int]) -> str:
    often = sorted(labels, key=lambda label: (-labels[label], label))
    return some([f"{label} ({plural(labels[label], 'time')})" for label in often], 6)
