"""The numbers of labels and intents, and what is said of those that the training data lacked."""

from collections.abc import Sequence

import numpy as np

from glassgate.tasks import bio
from glassgate.tasks.data.stored import Stored
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.vocabulary import FIRST, Vocabulary
from glassgate.tasks.errors import DataError


def counted(examples: Stored[Tagged]) -> str:
    """How many sentences, entities where labels mark some, and labels there are, in words."""
    found = [f"{len(examples):,} sentences"]
    labels = examples.counts("labels")
    if bio.is_bio(labels):
        found.append(f"{sum(count for label, count in labels.items() if label[0] == 'B'):,} entities")
    return f"{', '.join(found)}, {len(labels):,} labels"


def numbers_of_labels(example: Tagged, vocabulary: Vocabulary, labels: Sequence[str]) -> np.ndarray:
    """One number for each unit, `(L,)`.

    Raises:
        DataError: labels that are too many, too few or unknown
    """
    if len(labels) != len(example.units):
        raise DataError(
            source_of(example),
            example.line(),
            f"expected {len(example.units)} labels, one for each unit, got {len(labels)}",
        )
    numbers = vocabulary.encode(labels) - FIRST
    if (numbers < 0).any():
        place = int(np.argmax(numbers < 0))
        raise DataError(
            source_of(example),
            example.line(place),
            f"label {labels[place]!r} was not among the {len(vocabulary.symbols)} labels of the training data "
            f"({some(vocabulary.symbols)}); correct the label, choose another --column, or train with it",
        )
    return numbers


def number_of_intent(example: Tagged, vocabulary: Vocabulary) -> np.ndarray:
    """The number of a sequence's intent.

    Raises:
        DataError: there is none, or an unknown one
    """
    if example.intent is None:
        raise DataError(
            source_of(example),
            example.line(),
            "expected an intent, as in training, got none; write `# intent = NAME` in a line before the sequence",
        )
    if example.intent not in vocabulary:
        raise DataError(
            source_of(example),
            example.line(),
            f"intent {example.intent!r} was not among the {len(vocabulary.symbols)} intents of the training data "
            f"({some(vocabulary.symbols)}); correct it, or train with it",
        )
    return vocabulary.encode([example.intent])[0] - FIRST


def source_of(example: Tagged) -> str:
    """Where an example is from, as a message says it."""
    return example.source or "given examples"


def some(symbols: Sequence[str], most: int = 12) -> str:
    """The first of many names."""
    return ", ".join(symbols[:most]) + (", ..." if len(symbols) > most else "")
