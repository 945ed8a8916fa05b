"""Reads rows with keys (JSON, JSON lines, Parquet, data frames), and arrays of NumPy files."""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.tasks.data.annotations import is_rejected, reject_unread_json, usual_row
from glassgate.tasks.data.files import loading, readable_file
from glassgate.tasks.data.lines import open_text, read_lines
from glassgate.tasks.errors import DataError
from glassgate.tasks.wording import plural

TABLE_KINDS = ("csv", "tsv", "xlsx")
"""Kinds of tables whose first row is a header, unless an option names columns by number."""

KEYED_KINDS = ("jsonl", "json", "parquet")
"""Kinds of files whose rows are mappings from keys to values."""

PART_NAMES = {"train", "dev", "valid", "validation", "val", "test"}
"""The usual names of the parts of a data set, in lower case."""
_MIN_WORDS = 6  # single words with a label each, in an object

LabelNames = Mapping[str, Sequence[str]]
"""The names of the labels in each column that stores labels as integers, by the key of the column."""


def read_rows(path: str | Path, kind: str) -> Iterator[tuple[int, Any, LabelNames]]:
    """Yield the number of each row, the row, and the label names of a file of one of `KEYED_KINDS`.

    The number of a row in JSON lines is the line number. In other files, rows are counted from 1. Nested objects are
    joined with the row that contains them, see `flat`.
    """
    rows = _stored_rows(path, kind)
    return ((number, flat(usual_row(row)), names) for number, row, names in rows if not is_rejected(row))


def _stored_rows(path: str | Path, kind: str) -> Iterator[tuple[int, Any, LabelNames]]:
    if kind == "parquet":
        return _parquet(path)
    return ((number, row, {}) for number, row in (_read_json if kind == "json" else read_json_lines)(path))


def note_on_rejected(path: str | Path, kind: str) -> str:
    """Return the number of rows that an annotator has rejected or skipped as the end of a note; empty if it is 0."""
    if kind not in ("json", "jsonl"):
        return ""
    rows = (row for _, row, _ in _stored_rows(path, kind))
    first = next(rows, None)
    if not (isinstance(first, dict) and "_task_hash" in first):
        return ""
    count = sum(map(is_rejected, chain([first], rows)))
    return f"; {plural(count, 'rejected or skipped row')} dropped" if count else ""


def read_json_lines(path: str | Path) -> Iterator[tuple[int, Any]]:
    """Yield the line number and the row of each line of JSON lines."""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = f"the line does not parse: {error}; correct the line"
            raise DataError(path, number, f"expected a JSON object in one line, but {reason}") from None
        if number == 1:
            reject_unread_json(path, row)
        yield number, row


def load_json(path: str | Path) -> Any:
    """Return the content of a JSON file."""
    with open_text(path) as file:
        try:
            content = json.load(file)
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            raise DataError(path, line, f"expected JSON, but it does not parse: {error}; correct the file") from None
    reject_unread_json(path, content)
    return content


def _read_json(path: str | Path) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a JSON file with their numbers, from 1.

    Rows are in a list, in the lists of an object, such as the parts "train" and "test", or see `rows_of_object`. Each
    text among the patterns of an intent of a chatbot is a row. So is each string of a list, and each list of tokens and
    their labels.
    """
    rows = load_json(path)
    if isinstance(rows, dict):
        rows = rows_of_object(rows) or rows
    if isinstance(rows, dict):
        lists = [value for value in rows.values() if isinstance(value, list)]
        contain_rows = all(isinstance(row, dict | list) for row in chain(*lists))
        if len(lists) == 1 or (lists and len(lists) == len(rows) and contain_rows):
            rows = [*chain(*lists)]
    if not isinstance(rows, list):
        got = type(rows).__name__
        raise DataError(path, None, f"expected a list of JSON objects, got {got}; write one object per row")
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


def rows_of_object(content: Mapping[str, Any]) -> list[Any] | None:
    """Return the rows in a JSON object of texts by label, of labels by text, or of columns; None for other objects.

    - Texts by label are lists of different lengths. Most texts consist of several words, or they are distinct words.
    - Labels by text are several labels, which repeat. Most keys consist of several words, or there are many.
    - Columns are lists of one length, one of which consists mostly of texts with spaces.

    Example:
        >>> rows_of_object({"greeting": ["hello", "hi", "morning"], "farewell": ["bye"]})[3]
        {'text': 'bye', 'label': 'farewell'}
        >>> rows_of_object({"a fine day": "good", "a bad day": "bad", "a fine film": "good", "a bad film": "bad"})[0]
        ['a fine day', 'good']
        >>> rows_of_object({"text": ["a fine day", "a bad day"], "label": [1, 0]})[0]
        {'text': 'a fine day', 'label': 1}
        >>> rows_of_object({"tokens": ["a", "fine", "day"], "tags": ["DT", "JJ", "NN"]})
    """
    values = [*content.values()]
    if values and all(isinstance(label, str) for label in values) and 2 * len({*values}) <= len(values):
        is_labelled = _are_texts([*content]) or (len(content) >= _MIN_WORDS and len({*values}) > 1)
        return [[text, label] for text, label in content.items()] if is_labelled else None
    if not all(isinstance(value, list) for value in values):
        return None
    if len({*map(len, values)}) > 1:
        texts = [text for each in values for text in each]
        are_parts = {*map(str.lower, content)} <= PART_NAMES
        if are_parts or not all(isinstance(text, str) for text in texts):
            return None
        if not _are_texts(texts) and len({*texts}) < len(texts):
            return None
        return [{"text": text, "label": label} for label, each in content.items() for text in each]
    if len(values) < 2 or len(values[0]) < 2 or any(isinstance(cell, list | dict) for cell in chain(*values)):
        return None
    if not any(2 * sum(isinstance(cell, str) and " " in cell for cell in column) > len(column) for column in values):
        return None
    return [dict(zip(content, row, strict=True)) for row in zip(*values, strict=True)]


def _are_texts(texts: Sequence[str]) -> bool:
    """Whether most texts consist of several words or of characters beyond ASCII, as some languages lack spaces."""
    return 2 * sum(" " in text or not text.isascii() for text in texts) > len(texts)


def _parquet(path: str | Path) -> Iterator[tuple[int, dict[str, Any], LabelNames]]:
    import pyarrow.parquet as pq

    with loading(path, "a Parquet file", "write it again"), pq.ParquetFile(readable_file(path)) as file:
        metadata = json.loads((file.schema_arrow.metadata or {}).get(b"huggingface", b"{}"))
        names = _class_names(metadata.get("info", {}).get("features", {}))
        rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches())
        yield from ((number, row, names) for number, row in enumerate(rows, start=1))


def load_arrays(path: str | Path, remedy: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name; the array of a .npy file is named "train".

    Args:
        remedy: the end of the error message for a file that does not load
    """
    reason = "not without pickle"  # the message of NumPy recommends to allow pickles, which is unsafe
    with loading(path, "arrays of numbers", remedy, reason), readable_file(path).open("rb") as file:
        content = np.load(file, allow_pickle=False)
        arrays = {"train": content} if isinstance(content, np.ndarray) else dict(content)
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError
        return arrays


def split_parts(data: Any) -> dict[str, Any]:
    """Return the train, dev and test parts of a `DatasetDict`; any other object is the train part.

    Example:
        >>> split_parts({"train": [1], "validation": [2]})
        {'train': [1], 'dev': [2], 'test': ()}
    """
    parts = data if isinstance(data, Mapping) else {"train": data}
    dev = next((parts[name] for name in ("validation", "dev", "valid") if name in parts), ())
    return {"train": parts.get("train", ()), "dev": dev, "test": parts.get("test", ())}


def iterate_rows(data: Any) -> Iterator[tuple[int, Any, LabelNames]]:
    """Yield rows as `read_rows` does, from a `datasets.Dataset`, a pandas frame, an Arrow table or a list of dicts."""
    names = _class_names(getattr(data, "features", None) or {})
    if hasattr(data, "to_pylist"):
        rows = data.to_pylist()
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):
        rows = data.to_dict("records")
    else:
        rows = data
    for number, row in enumerate(rows, start=1):
        yield number, {key: _to_python(value) for key, value in row.items()}, names


def _class_names(features: Mapping[str, Any]) -> LabelNames:
    """The class names of each column of class labels in the features of a Hugging Face data set."""
    return {key: names for key, feature in features.items() if (names := _names_of_feature(feature))}


def _names_of_feature(feature: Any) -> Sequence[str] | None:
    """The names of a feature: a `ClassLabel` or a list of them, as an object or as parsed JSON of a Parquet file."""
    if feature is None:
        return None
    get = feature.get if isinstance(feature, Mapping) else lambda key: getattr(feature, key, None)
    return get("names") or _names_of_feature(get("feature"))


def _to_python(value: Any) -> Any:
    """Convert NumPy values and tuples to Python numbers and lists."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, tuple) else value


def label_name(label: Any, names: Sequence[str] | None) -> str:
    """Return the name of a label; an integer is an index into `names`.

    The name of a missing label (None, NaN, or an index outside of `names`, such as -1) is empty. A list of one label is
    this label.

    Example:
        >>> label_name(1, ["O", "B-PER"]), label_name(-1, ["O", "B-PER"]), label_name(1, None), label_name(None, None)
        ('B-PER', '', '1', '')
    """
    if is_missing(label):
        return ""
    if isinstance(label, list) and len(label) == 1:
        return label_name(label[0], names)
    if names is None or not isinstance(label, int):
        return str(label)
    return names[label] if 0 <= label < len(names) else ""


def is_missing(value: Any) -> bool:
    """Whether a value is None or NaN."""
    return value is None or value != value


def as_sequences(tokens: Any, labels: Any) -> tuple[list[Any], list[Any]] | None:
    """Return tokens and labels as two lists, if the texts in a row contain lists, or words and as many labels.

    Example:
        >>> as_sequences("New York", "B-LOC I-LOC"), as_sequences('["a"]', "['DT']"), as_sequences("a film", "good")
        ((['New', 'York'], ['B-LOC', 'I-LOC']), (['a'], ['DT']), None)
    """
    token_list, label_list = map(as_list, (tokens, labels))
    return (token_list, label_list) if len(token_list) == len(label_list) else None


def as_list(value: Any) -> list[Any]:
    """The list that a text contains, in the syntax of JSON or Python, or its words."""
    if isinstance(value, list):
        return value
    text = str(value).strip()
    if text.startswith("[") and text.endswith("]"):
        try:
            parsed = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return text.split()
        return parsed if isinstance(parsed, list) else [parsed]
    return text.split()


def flat(row: Any, prefix: str = "") -> Any:
    """Return a row in which members of nested objects are members with joined names.

    Example:
        >>> flat({"id": 1, "data": {"text": "a fine day", "label": {"name": "good"}}})
        {'id': 1, 'data.text': 'a fine day', 'data.label.name': 'good'}
    """
    if not isinstance(row, dict):
        return row
    members: dict[str, Any] = {}
    for key, value in row.items():
        members |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return members
