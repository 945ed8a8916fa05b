"""Detects the kind of a data file, a format such as "csv", from its name or its first bytes; and numbers in texts."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glassgate.tasks.data.files import STDIN, archive_members, open_file, suffix_of
from glassgate.tasks.data.lines import requested_encoding
from glassgate.tasks.errors import UserError

SUFFIXES = {
    **{".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".xlsx": "xlsx", ".parquet": "parquet", ".pq": "parquet"},
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".txt": "text", ".py": "python"},
    **{".conllu": "conllu", ".conll": "columns", ".iob": "columns", ".iob2": "columns", ".bio": "columns"},
    **{".ts": "ts", ".npz": "npz", ".npy": "npy", ".mat": "mat", ".arff": "arff", ".tsf": "tsf"},
}
"""The kind of a file by its suffix."""

_HEAD_SIZE = 2**16  # bytes at the beginning of a file that are examined
PART_NAMES = {"train", "dev", "valid", "validation", "val", "test"}
"""The usual names of the parts of a data set, in lower case."""
_TIME = re.compile(r"\d{1,4}[-/.:]\d{1,2}([-/.:]\d{1,4})?(\.\d+)?")
_MIN_WORDS = 6  # single words with a label each, in an object
_JSON_LIST = re.compile(r"\s*\[\s*[\[{]")
_SIGNATURES = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"MATLAB 5.0 MAT-file": "mat", b"\x89HDF\r\n": "mat"}


def detect_kind(path: str | Path) -> str:
    """Return the kind of a file, a value of `SUFFIXES` or "folder"; empty if it is unknown.

    Example:
        >>> detect_kind("train.conllu.gz")
        'conllu'
    """
    if str(path) != STDIN and Path(path).is_dir():
        return "folder"
    kind = "" if str(path) == STDIN else SUFFIXES.get(suffix_of(path), "")
    return (kind if kind != "json" else "") or _kind_by_content(path) or kind  # .json can contain JSON lines


def _kind_by_content(path: str | Path) -> str:
    """Detect the kind from the members of an archive, a signature, JSON syntax, or the tags of .ts, .tsf and .arff."""
    names = archive_members(path)
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    if "xl/workbook.xml" in names:
        return "xlsx"
    try:
        with open_file(path) as file:
            head = file.read(_HEAD_SIZE)
    except UserError:
        return ""
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return kind
    text = head.decode(requested_encoding() or "utf-8", errors="replace").lstrip("\ufeff")
    if _JSON_LIST.match(text):
        return "json"
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("{"):
        return _kind_of_json_object(lines)
    tags = [line for line in lines if not line.startswith("#")]
    if tags and tags[0].lower().startswith("@relation"):
        return "tsf" if any(tag.lower().startswith("@frequency") for tag in tags) else "arff"
    return "ts" if tags and tags[0].lower().startswith("@problemname") else ""


def _kind_of_json_object(lines: Sequence[str]) -> str:
    """The kind of JSON that begins with an object: "jsonl" for one object per line, or "json".

    The kind is "json" if the object spans several lines, or if it is the only one and contains a list of rows, columns,
    or labelled texts.
    """
    try:
        first = json.loads(lines[0])
    except ValueError:
        return "json"
    contains_rows = any(
        isinstance(value, list) and all(isinstance(item, list | dict) for item in value) for value in first.values()
    )
    contains_rows |= are_columns(first) or are_labels_by_text(first) or are_texts_by_label(first)
    return "json" if len(lines) == 1 and contains_rows else "jsonl"


def are_columns(content: Mapping[str, Any]) -> bool:
    """Whether a JSON object contains columns: lists of one length, one of which consists mostly of texts with spaces.

    Example:
        >>> are_columns({"text": ["a fine day", "a bad day"], "label": [1, 0]})
        True
        >>> are_columns({"tokens": ["a", "fine", "day"], "tags": ["DT", "JJ", "NN"]})
        False
    """
    columns = list(content.values())
    if len(columns) < 2 or not all(isinstance(column, list) and len(column) > 1 for column in columns):
        return False
    if len({len(column) for column in columns}) > 1 or any(isinstance(x, list | dict) for row in columns for x in row):
        return False
    return any(2 * sum(isinstance(x, str) and " " in x for x in column) > len(column) for column in columns)


def are_labels_by_text(content: Mapping[str, Any]) -> bool:
    """Whether a JSON object contains texts and their labels: several labels, which repeat.

    Most keys consist of several words, or there are many. Keys beyond ASCII are texts, too, because some languages are
    written without spaces.

    Example:
        >>> are_labels_by_text({"a fine day": "good", "a bad day": "bad", "a fine film": "good", "a bad film": "bad"})
        True
        >>> are_labels_by_text({"text": "a fine day", "label": "good"})
        False
    """
    labels = list(content.values())
    if not labels or not all(isinstance(label, str) for label in labels) or 2 * len({*labels}) > len(labels):
        return False
    return _are_texts([*content]) or (len(content) >= _MIN_WORDS and len({*labels}) > 1)


def are_texts_by_label(content: Mapping[str, Any]) -> bool:
    """Whether a JSON object contains labels and their texts: lists of different lengths.

    Most of the texts consist of several words, or they are distinct words.

    Example:
        >>> are_texts_by_label({"good": ["a fine day", "a fine film"], "bad": ["a bad day"]})
        True
        >>> are_texts_by_label({"greeting": ["hello", "hi", "morning"], "farewell": ["bye"]})
        True
        >>> are_texts_by_label({"train": ["a fine day", "a fine film"], "test": ["a bad day"]})
        False
    """
    lists = list(content.values())
    if {*map(str.lower, content)} <= PART_NAMES or not all(isinstance(texts, list) for texts in lists):
        return False
    texts = [text for each in lists for text in each]
    if len({*map(len, lists)}) < 2 or not all(isinstance(text, str) for text in texts):
        return False
    return _are_texts(texts) or len({*texts}) == len(texts)


def _are_texts(texts: Sequence[str]) -> bool:
    """Whether most texts consist of several words or of characters beyond ASCII."""
    return 2 * sum(" " in text or not text.isascii() for text in texts) > len(texts)


def is_number(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return abs(float(text)) < float("inf")
    except ValueError:
        return False


def is_number_or_time(text: str) -> bool:
    """Whether a text is a finite number, or digits in the form of a date or of a time of day."""
    return is_number(text) or bool(_TIME.fullmatch(text))
