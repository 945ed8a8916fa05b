"""What is said of the labels and intents of tagging."""

from collections.abc import Sequence

from glassgate.tasks.data import bio
from glassgate.tasks.data.store.examples import Stored
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError
from glassgate.tasks.wording import plural


def counted(examples: Stored[Tagged]) -> str:
    """How many sentences, entities where labels mark some, and labels there are, in words."""
    found = [plural(len(examples), "sentence")]
    labels = examples.counts("labels")
    if bio.is_bio(labels):
        entities = sum(count for label, count in labels.items() if label[0] == "B")
        found.append("1 entity" if entities == 1 else f"{entities:,} entities")
    return ", ".join([*found, plural(len(labels), "label")])


def check_labels(example: Tagged, labels: Sequence[str], intents: bool) -> None:
    """See that each token has a label, and the sequence an intent where there are some.

    Raises:
        DataError: labels that are too many or too few, or no intent
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
    """Where an example is from, as a message says it."""
    return example.source or "given examples"
