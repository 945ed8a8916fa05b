"""Texts whose labels are spans of characters, as doccano and spaCy write them, as tokens with IOB2 labels."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassgate.tasks.errors import DataError

_TOKENS = re.compile("[\u3040-\u30ff\u3400-\u9fff]|[^\\W\u3040-\u30ff\u3400-\u9fff]+|[^\\w\\s]")
_KEYS = (("start", "start_offset", "begin"), ("end", "end_offset"), ("label", "labels", "type", "entity", "tag"))

Span = tuple[int, int, str]
"""The first character, the character after the last one, and the label."""


def as_spans(value: Any) -> list[Span] | None:
    """Return the spans in a cell; None if it contains anything else.

    Example:
        >>> as_spans([[0, 4, "PER"], {"start_offset": 9, "end_offset": 12, "label": "PER"}]), as_spans(["O", "B-PER"])
        ([(0, 4, 'PER'), (9, 12, 'PER')], None)
    """
    spans = [_as_span(each) for each in value] if isinstance(value, list) else [None]
    return None if None in spans else [span for span in spans if span is not None]


def _as_span(value: Any) -> Span | None:
    if isinstance(value, dict):
        value = [next((value[key] for key in keys if key in value), None) for keys in _KEYS]
        if isinstance(value[2], list) and len(value[2]) == 1:  # Label Studio allows several labels of a span
            value = [*value[:2], value[2][0]]
    is_span = isinstance(value, list) and [*map(type, value)] == [int, int, str]
    return tuple(value) if is_span else None


def label_tokens(path: str | Path, line: int, text: str, spans: Sequence[Span]) -> tuple[list[str], list[str]]:
    """Split a text into words, punctuation marks and ideographs, and also at the ends of spans; label them in IOB2.

    Raises:
        DataError: a span is outside of the text, or overlaps another one

    Example:
        >>> label_tokens("a.jsonl", 1, "Anna met Bob.", [(0, 4, "PER"), (9, 12, "PER")])
        (['Anna', 'met', 'Bob', '.'], ['B-PER', 'O', 'B-PER', 'O'])
    """
    tokens: list[str] = []
    labels: list[str] = []
    end = 0
    for start, stop, label in [*sorted(spans), (len(text), len(text), "")]:
        if not end <= start <= stop <= len(text):
            got = f"{[start, stop, label]} in a text of {len(text)} characters"
            raise DataError(path, line, f"expected spans inside the text that do not overlap, got {got}; correct it")
        outside, inside = _TOKENS.findall(text[end:start]), _TOKENS.findall(text[start:stop])
        tokens += [*outside, *inside]
        labels += ["O"] * len(outside) + [f"{'I' if k else 'B'}-{label}" for k in range(len(inside))]
        end = stop
    return tokens, labels
