"""Predictions as JSON objects: tokens with character offsets, spans and probabilities."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from glassgate.tasks.data import texts
from glassgate.tasks.data.tagged import Tagged

Record = dict[str, Any]
"""One prediction, ready for JSON. Offsets count characters of "text" from 0; the end is exclusive."""


def tokens_of(units: Sequence[str], starts: Sequence[int] = ()) -> tuple[str, list[Record]]:
    """Return a text and its tokens with their offsets.

    Args:
        units: the tokens; characters if it is a string
        starts: the position of each token in its line of raw text; if empty, tokens are joined by spaces

    Example:
        >>> tokens_of(["Hi", "!"], [0, 2])
        ('Hi!', [{'text': 'Hi', 'start': 0, 'end': 2}, {'text': '!', 'start': 2, 'end': 3}])
    """
    if not len(starts):
        gap = 0 if isinstance(units, str) else 1
        starts = [0]
        for unit in units[:-1]:
            starts.append(starts[-1] + len(unit) + gap)
    tokens: list[Record] = [
        {"text": unit, "start": int(start), "end": int(start) + len(unit)}
        for unit, start in zip(units, starts, strict=True)
    ]
    gaps = [after["start"] - before["end"] for before, after in pairwise(tokens)]
    indent = " " * tokens[0]["start"] if tokens else ""
    text = indent + "".join(each["text"] + " " * gap for each, gap in zip(tokens, [*gaps, 0], strict=True))
    return text, tokens


def text_record(units: Sequence[str], unit: str, values: Sequence[Record]) -> Record:
    """Return a text and its tokens, each with its offsets and some values.

    Args:
        units: the tokens
        unit: one of `texts.TOKEN_KINDS`; if tokens are bytes, offsets count bytes
        values: the values to add to each token

    Example:
        >>> text_record(["No", "!"], "word", [{"nats": 0.5}, {"nats": 0.25}])["tokens"][1]
        {'text': '!', 'start': 2, 'end': 3, 'nats': 0.25}
    """
    _, tokens = tokens_of(units, texts.starts(units, unit))
    return {
        "text": texts.join(units, unit),
        "tokens": [token | value for token, value in zip(tokens, values, strict=True)],
    }


def tagged_record(example: Tagged, labels: Sequence[str], probabilities: Sequence[float], are_bio: bool) -> Record:
    """Return the tokens of a sequence with their labels and, if the labels are in BIO form, the spans of its entities.

    The probability of a span is the mean of its tokens' probabilities.

    Args:
        example: the sequence
        labels, probabilities: the label of each token and its probability
        are_bio: whether the labels are in BIO form

    Example:
        >>> example = Tagged(["in", "New", "York"], None)
        >>> tagged_record(example, ["O", "B-LOC", "I-LOC"], [0.9, 0.75, 0.25], True)["spans"]
        [{'text': 'New York', 'label': 'LOC', 'probability': 0.5, 'start': 3, 'end': 11}]
    """
    text, tokens = tokens_of(example.tokens, example.starts)
    for token, label, probability in zip(tokens, labels, probabilities, strict=True):
        token |= {"label": label, "probability": probability}
    record: Record = {"text": text, "tokens": tokens}
    if not are_bio:
        return record
    entities: list[list[Record]] = []
    previous = "O"
    for token in tokens:
        label = token["label"]
        if label[0] == "B" or (label[0] == "I" and (previous == "O" or previous[1:] != label[1:])):
            entities.append([])
        if label != "O":
            entities[-1].append(token)
        previous = label
    record["spans"] = [
        {
            "text": text[entity[0]["start"] : entity[-1]["end"]],
            "label": entity[0]["label"][2:] or "entity",  # B and I without a type
            "probability": sum(each["probability"] for each in entity) / len(entity),
            "start": entity[0]["start"],
            "end": entity[-1]["end"],
        }
        for entity in entities
    ]
    return record
