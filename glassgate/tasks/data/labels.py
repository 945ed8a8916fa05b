"""Checks and summaries of the labels and intents of tagging examples."""

from collections.abc import Sequence

from glassgate.tasks.data import bio
from glassgate.tasks.data.store.examples import Stored
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError
from glassgate.tasks.wording import plural


def counted(examples: Stored[Tagged]) -> str:
    """Return the number of sentences, of entities if labels mark them, and of distinct labels, as text."""
    parts = [plural(len(examples), "sentence")]
    labels = examples.counts("labels")
    if bio.is_bio(labels):
        entities = sum(count for label, count in labels.items() if label[0] == "B")
        parts.append("1 entity" if entities == 1 else f"{entities:,} entities")
    return ", ".join([*parts, plural(len(labels), "label")])


def check_labels(example: Tagged, labels: Sequence[str], intents: bool) -> None:
    """Check that each token has a label, and that the sequence has an intent if `intents` is true.

    Raises:
        DataError: there are too many or too few labels, or the intent is missing
    """
    if len(labels) != len(example.units):
        raise DataError(
            source_of(example),
            example.line(),
            f"expected {len(example.units)} labels, one for each token, got {len(labels)}",
        )
    if intents and example.intent is None:
        raise DataError(
            source_of(example),
            example.line(),
            "expected an intent, as in training, got none; write `# intent = NAME` in a line before the sequence",
        )


def source_of(example: Tagged) -> str:
    """Return the source of an example, for messages."""
    return example.source or "given examples"
