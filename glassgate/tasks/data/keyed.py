"""Rows with named values: JSON lines, and Parquet as Hugging Face's `datasets` and pandas write it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from glassgate.tasks.data.detect import kind_of
from glassgate.tasks.data.files import local, read_lines
from glassgate.tasks.errors import DataError

KINDS = ("jsonl", "parquet")
"""Of the files that `read` reads."""

UNITS = ("tokens", "words", "units", "text")
"""What the key of a sequence's units is usually called."""

LABELS = ("ner_tags", "tags", "labels", "pos_tags", "upos", "pos", "ner")
"""What the key of their labels is usually called."""

TEXTS = ("text", "sentence", "content", "review", "utterance", "comment", "tweet", "message", "headline")
LABEL = ("label", "labels", "class", "category", "sentiment", "intent", "target", "topic")

Names = Mapping[str, Sequence[str]]
"""What the numbers under a key stand for."""


def read(path: str | Path) -> Iterator[tuple[int, Any, Names]]:
    """Yield the number of each row, from 1, the row, and the names of labels that the file has.

    Raises:
        DataError: see `read_lines`; a line is no JSON object, or the file no Parquet
    """
    return _parquet(path) if kind_of(path) == "parquet" else _json_lines(path)


def parts(given: Any) -> dict[str, Any]:
    """Return the parts of an object that is given in place of files: a `DatasetDict`'s, or all of it for training.

    Example:
        >>> parts({"train": [1], "validation": [2]})
        {'train': [1], 'dev': [2], 'test': ()}
        >>> parts([1])
        {'train': [1], 'dev': (), 'test': ()}
    """
    if not isinstance(given, Mapping):
        return {"train": given, "dev": (), "test": ()}
    dev = next((given[name] for name in ("validation", "dev", "valid") if name in given), ())
    return {"train": given.get("train", ()), "dev": dev, "test": given.get("test", ())}


def rows_of(given: Any) -> Iterator[tuple[int, Any, Names]]:
    """Yield the rows of a `datasets.Dataset`, a pandas frame, an Arrow table or of mappings, as `read` does."""
    features = getattr(given, "features", None) or {}
    names = {key: found for key, feature in features.items() if (found := _names_of(feature))}
    if hasattr(given, "to_pylist"):
        rows = given.to_pylist()
    elif hasattr(given, "to_dict") and hasattr(given, "columns"):
        rows = given.to_dict("records")
    else:
        rows = given
    for number, row in enumerate(rows, start=1):
        yield number, {key: _plain(value) for key, value in row.items()}, names


def _names_of(feature: Any) -> Sequence[str] | None:
    """The names of a `ClassLabel`, or of the elements of a list of them."""
    names = getattr(feature, "names", None)
    if names is None and getattr(feature, "feature", None) is not None:
        return _names_of(feature.feature)
    return names


def _plain(value: Any) -> Any:
    """What NumPy holds as Python's own numbers and lists, and a tuple as a list."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, tuple) else value


def value(path: str | Path, number: int, row: Any, name: str | None, usual: Sequence[str], option: str) -> Any:
    """Return what is under a key: the one given, or the first of the usual ones that the row has.

    Raises:
        DataError: it has none of them
    """
    known = row if isinstance(row, dict) else {}
    found = name if name is not None else next((each for each in usual if each in known), usual[0])
    if not isinstance(row, dict) or found not in row:
        got = ", ".join(map(repr, row)) or "no key" if isinstance(row, dict) else type(row).__name__
        raise DataError(path, number, f"expected a key {found!r}, got {got}; name yours with {option}")
    return row[found]


def named(label: Any, names: Sequence[str] | None) -> str:
    """Return a label's name, where it is a number that stands for one.

    Example:
        >>> named(1, ["O", "B-PER"]), named(1, None), named("O", None)
        ('B-PER', '1', 'O')
    """
    return names[label] if names is not None and isinstance(label, int) else str(label)


def _json_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any], Names]]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                path, number, f"expected a JSON object in one line, got what does not parse: {error}; correct the line"
            ) from None
        yield number, row, {}


def _parquet(path: str | Path) -> Iterator[tuple[int, dict[str, Any], Names]]:
    if not local(path).is_file():
        raise DataError(path, None, "no such file; check the path, or the folder you started from")
    try:
        with pq.ParquetFile(local(path)) as file:
            names, number = _names(file.schema_arrow.metadata or {}), 0
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield number, row, names
    except pa.ArrowException as error:
        raise DataError(path, None, f"expected Parquet, got what does not load: {error}") from None


def _names(metadata: Mapping[bytes, bytes]) -> Names:
    """The names that `datasets` keeps beside a column of numbers."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    except (ValueError, AttributeError):
        return {}
    return {key: found for key, feature in features.items() if (found := class_names(feature))}


def class_names(feature: Any) -> Sequence[str] | None:
    """The names in the description of a column, its own or those of a list's elements."""
    if not isinstance(feature, dict):
        return None
    return feature.get("names") or class_names(feature.get("feature"))
