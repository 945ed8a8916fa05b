"""Reads rows with keys (JSON, JSON lines, Parquet, data frames), and arrays of NumPy files."""

import ast
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.tasks.data.annotations import is_rejected, usual_row
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.files import loading, readable_file
from glassgate.tasks.data.json_rows import read_json, read_json_lines
from glassgate.tasks.errors import DataError

TABLE_KINDS = ("csv", "tsv", "xlsx")
"""Kinds of tables whose first row is a header, unless an option names columns by number."""

KEYED_KINDS = ("jsonl", "json", "parquet")
"""Kinds of files whose rows are mappings from keys to values."""

TOKEN_COLUMNS = ("tokens", "words", "units", "token", "word", "form", "text")
"""The usual names of columns or keys with tokens."""

TAG_COLUMNS = (
    *("ner_tags", "tags", "labels", "pos_tags", "upos", "pos", "ner", "ner_tag", "tag", "label", "xpos"),
    *("chunk", "bio", "iob", "iob2", "entity"),
)
"""The usual names of columns or keys with labels of tokens."""

SPAN_COLUMNS = ("entities", "spans")
"""The usual names of columns or keys with labelled spans of a text."""

TEXT_COLUMNS = ("text", "sentence", "content", "review", "utterance", "comment", "tweet", "message", "headline")
"""The usual names of columns or keys with texts."""

LABEL_COLUMNS = ("label", "labels", "class", "category", "sentiment", "intent", "target", "topic")
"""The usual names of columns or keys with labels of texts."""

LabelNames = Mapping[str, Sequence[str]]
"""The names of the labels in each column that stores labels as integers, by the key of the column."""


def read_rows(path: str | Path, kind: str = "") -> Iterator[tuple[int, Any, LabelNames]]:
    """Yield the number of each row, the row, and the label names of the file.

    The number of a row in JSON lines is the line number. In other files, rows are counted from 1.

    Nested objects are joined with the row that contains them, see `flat`.

    Args:
        kind: one of `KEYED_KINDS`; detected if empty

    Raises:
        DataError: see `read_lines`; the content is not valid JSON or Parquet
    """
    kind = kind or detect_kind(path)
    if kind == "parquet":
        rows = _parquet(path)
    else:
        rows = ((number, row, {}) for number, row in (read_json if kind == "json" else read_json_lines)(path))
    return ((number, flat(usual_row(row)), names) for number, row, names in rows if not is_rejected(row))


def split_parts(data: Any) -> dict[str, Any]:
    """Return the train, dev and test parts of a `DatasetDict`; any other object is the train part.

    Example:
        >>> split_parts({"train": [1], "validation": [2]})
        {'train': [1], 'dev': [2], 'test': ()}
        >>> split_parts([1])
        {'train': [1], 'dev': (), 'test': ()}
    """
    if not isinstance(data, Mapping):
        return {"train": data, "dev": (), "test": ()}
    dev = next((data[name] for name in ("validation", "dev", "valid") if name in data), ())
    return {"train": data.get("train", ()), "dev": dev, "test": data.get("test", ())}


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


def usual_key(
    path: str | Path, number: int, keys: Sequence[str], usual_names: Sequence[str], option: str
) -> str | None:
    """Return the key with the most usual name; None if no key has a usual name.

    Raises:
        DataError: there are several usual keys of texts or labels, but not the first of `usual_names`
    """
    if usual_names[0] in keys:
        return usual_names[0]
    found = sorted(
        (key for key in keys if last_name(key) in usual_names), key=lambda key: usual_names.index(last_name(key))
    )
    contents = {TEXT_COLUMNS: "text", LABEL_COLUMNS: "label", (*TAG_COLUMNS, *SPAN_COLUMNS): "labels"}
    if (
        len(found) > 1
        and usual_names in contents
        and (last_name(found[0]) != usual_names[0] or last_name(found[0]) == last_name(found[1]))
    ):
        choices = ", or ".join(f"{option} {shlex.quote(key)}" for key in found)
        content = contents[tuple(usual_names)]
        raise DataError(path, number, f"the {content} could be in {' or in '.join(map(repr, found))}; choose {choices}")
    return found[0] if found else None


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


def last_name(name: str) -> str:
    """Return the name of a column or of a nested key in lower case, without the keys that lead to it."""
    return name.strip().lower().rpartition(".")[2]


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

    Raises:
        DataError: the file cannot be read, or contains anything other than arrays of numbers
    """
    reason = "not without pickle"  # the message of NumPy recommends to allow pickles, which is unsafe
    with loading(path, "arrays of numbers", remedy, reason), readable_file(path).open("rb") as file:
        content = np.load(file, allow_pickle=False)
        arrays = {"train": content} if isinstance(content, np.ndarray) else dict(content)
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError
        return arrays
