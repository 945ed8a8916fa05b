"""Texts and labels in rows: mappings from keys to values, and lists of a text and its label."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from glassgate.tasks.data import records
from glassgate.tasks.errors import DataError

Row = tuple[int, str, str | None]
"""A line number, a text and its label."""


def rows_of_pairs(
    path: str | Path, rows: Iterator[tuple[int, Any, records.LabelNames]]
) -> Iterator[tuple[int, Any, records.LabelNames]]:
    """Convert rows that are lists of a text and a label to objects; yield other rows unchanged.

    Raises:
        DataError: either element can be the label, or neither can
    """
    first = next(rows, None)
    if first is None:
        return
    rows = chain([first], rows)
    if not isinstance(first[1], list) or len(first[1]) != 2:
        yield from rows
        return
    read = list(rows)
    if any(len(row) != 2 or not all(isinstance(each, str | int) for each in row) for _, row, _ in read):
        raise DataError(path, first[0], f"expected objects, or lists of a text and its label, got {first[1]!r}")
    counts = [len({row[index] for _, row, _ in read}) for index in (0, 1)]
    if counts[0] == counts[1] or 2 * min(counts) > len(read):
        raise DataError(
            path,
            first[0],
            f"expected lists of a text and its label, in which labels repeat, got {counts[0]} and {counts[1]} distinct "
            f"values in {len(read)} rows; write objects with the keys 'text' and 'label'",
        )
    label = int(counts[1] < counts[0])
    for number, row, names in read:
        yield number, {"text": row[1 - label], "label": row[label]}, names


def _is_one_label(labels: Sequence[Any]) -> bool:
    """Whether a list contains one label or only numbers, the targets of regression."""
    are_numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in labels)
    return are_numbers or (len(labels) == 1 and not isinstance(labels[0], list | dict))


def extract_texts(
    path: str | Path,
    rows: Iterator[tuple[int, Any, records.LabelNames]],
    text_key: str,
    label_key: str | None,
) -> Iterator[Row]:
    """Yield the number, the text and the label of each row. A missing text or label is an empty string.

    Args:
        path: the origin of the rows, for messages
        rows: the rows, as `records.read_rows` yields them
        text_key: the key of the texts; the default "text" also matches other usual keys
        label_key: the key of the labels; the default "label" also matches other usual keys; None reads no labels
    """
    texts = None if text_key == "text" else text_key, records.TEXT_COLUMNS, "--text-column"
    labels = None if label_key == "label" else label_key, records.LABEL_COLUMNS, "--label-column"
    for number, row, label_names in rows:
        text = row[records.find_key(path, number, row, *texts)]
        text = "" if records.is_missing(text) else text
        if not isinstance(text, str):
            raise DataError(path, number, f"expected a string under {text_key!r}, got {type(text).__name__}; quote it")
        label = None
        if label_key is not None:
            key = records.find_key(path, number, row, *labels)
            if isinstance(row[key], list) and not _is_one_label(row[key]):
                remedy = "leave one, or join them to one"
                if any(isinstance(each, list | dict) for each in row[key]):
                    remedy = "for tagging, write a list of tokens and a list of their labels in each row"
                raise DataError(path, number, f"expected one label under {key!r}, got {row[key]}; {remedy}")
            label = records.label_name(row[key], label_names.get(key))
        yield number, text, label
