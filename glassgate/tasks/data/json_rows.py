"""Reads the rows of JSON files and JSON lines."""

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from glassgate.tasks.data.detect import are_columns, are_labels_by_text, are_texts_by_label
from glassgate.tasks.data.lines import open_text, read_lines
from glassgate.tasks.errors import DataError


def read_json_lines(path: str | Path) -> Iterator[tuple[int, Any]]:
    """Yield the line number and the row of each line of JSON lines."""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                path,
                number,
                f"expected a JSON object in one line, but the line does not parse: {error}; correct the line",
            ) from None
        yield number, row


def read_json(path: str | Path) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a JSON file with their numbers, from 1.

    Rows are in a list, in the lists of an object, such as the parts "train" and "test", or in columns.

    Each member of an object from texts to labels is a row `[text, label]`. Each text of an object from labels to texts,
    or among the patterns of an intent of a chatbot, is a row. So is each string of a list, and each list of tokens and
    their labels.
    """
    rows = load_json(path)
    if isinstance(rows, dict) and are_texts_by_label(rows):
        rows = [{"text": text, "label": label} for label, texts in rows.items() for text in texts]
    if isinstance(rows, dict) and are_labels_by_text(rows):
        rows = [[text, label] for text, label in rows.items()]
    if isinstance(rows, dict) and are_columns(rows):
        rows = [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
    if isinstance(rows, dict):
        lists = [value for value in rows.values() if isinstance(value, list)]
        if len(lists) == 1 or (lists and len(lists) == len(rows) and _contain_rows(lists)):
            rows = [*chain.from_iterable(lists)]
    if not isinstance(rows, list):
        raise DataError(
            path, None, f"expected a list of JSON objects, got {type(rows).__name__}; write one object per row"
        )
    if all(isinstance(row, str) for row in rows):
        rows = [{"text": row} for row in rows]
    if rows and all(_is_sentence(row) for row in rows):
        rows = [{"tokens": [token for token, _ in row], "tags": [tag for _, tag in row]} for row in rows]
    if rows and all(isinstance(row, dict) and {"patterns", "tag"} <= row.keys() for row in rows):
        rows = [{"text": text, "label": row["tag"]} for row in rows for text in row["patterns"]]
    yield from enumerate(rows, start=1)


def _is_sentence(row: Any) -> bool:
    """Whether a row is a list of tokens with a label each."""
    pairs = row if isinstance(row, list) else []
    return bool(pairs) and all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(each, str) for each in pair) for pair in pairs
    )


def _contain_rows(lists: Sequence[list[Any]]) -> bool:
    """Whether lists are parts of the data, each with rows that are objects or lists."""
    return all(isinstance(row, dict | list) for rows in lists for row in rows)


def load_json(path: str | Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        DataError: see `read_lines`; the file does not parse
    """
    with open_text(path) as file:
        try:
            return json.load(file)
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            raise DataError(path, line, f"expected JSON, but it does not parse: {error}; correct the file") from None
