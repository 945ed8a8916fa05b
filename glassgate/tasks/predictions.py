"""Predictions as JSON objects: tokens with character offsets, spans and probabilities."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from glassgate.tasks.data import texts
from glassgate.tasks.data.bio import may_follow
from glassgate.tasks.data.tagged import Tagged

Record = dict[str, Any]
"""A prediction, ready for JSON. Offsets count characters or bytes of "text" from 0; the end is exclusive."""


def token_records(tokens: Sequence[str], starts: Sequence[int] = ()) -> tuple[str, list[Record]]:
    """Return a text, and a record for each token with its offsets.

    Args:
        tokens: the tokens; a string is a sequence of characters
        starts: the offset of each token in the raw text; if empty, the text is the tokens joined by spaces, or
            `tokens` itself if it is a string

    Example:
        >>> token_records(["Hi", "!"], [0, 2])
        ('Hi!', [{'text': 'Hi', 'start': 0, 'end': 2}, {'text': '!', 'start': 2, 'end': 3}])
    """
    if not len(starts):
        gap = 0 if isinstance(tokens, str) else 1
        starts = [0]
        for token in tokens[:-1]:
            starts.append(starts[-1] + len(token) + gap)
    records: list[Record] = [
        {"text": token, "start": int(start), "end": int(start) + len(token)}
        for token, start in zip(tokens, starts, strict=True)
    ]
    gaps = [following["start"] - record["end"] for record, following in pairwise(records)]
    indent = " " * records[0]["start"] if records else ""
    text = indent + "".join(record["text"] + " " * gap for record, gap in zip(records, [*gaps, 0], strict=True))
    return text, records


def text_record(tokens: Sequence[str], token_kind: str, values: Sequence[Record]) -> Record:
    """Return a record of a text, with its tokens, their offsets and additional values.

    Args:
        tokens: the tokens
        token_kind: one of `texts.TOKEN_KINDS`; if tokens are bytes, offsets count bytes
        values: the values to add to the record of each token
    """
    _, records = token_records(tokens, texts.starts(tokens, token_kind))
    return {
        "text": texts.join(tokens, token_kind),
        "tokens": [record | value for record, value in zip(records, values, strict=True)],
    }


def tagged_record(example: Tagged, labels: Sequence[str], probabilities: Sequence[float], are_bio: bool) -> Record:
    """Return a record of a sequence with the labels of its tokens and, if they are in BIO form, the spans of entities.

    The probability of a span is the mean of the probabilities of its tokens.

    Example:
        >>> example = Tagged(["in", "New", "York"], None)
        >>> tagged_record(example, ["O", "B-LOC", "I-LOC"], [0.9, 0.75, 0.25], True)["spans"]
        [{'text': 'New York', 'label': 'LOC', 'probability': 0.5, 'start': 3, 'end': 11}]
    """
    text, tokens = token_records(example.tokens, example.starts)
    for token, label, probability in zip(tokens, labels, probabilities, strict=True):
        token |= {"label": label, "probability": probability}
    record: Record = {"text": text, "tokens": tokens}
    if not are_bio:
        return record
    entities: list[list[Record]] = []
    for previous, token in pairwise([{"label": "O"}, *tokens]):
        if token["label"][0] == "B" or not may_follow(previous["label"], token["label"]):
            entities.append([])
        if token["label"] != "O":
            entities[-1].append(token)
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
