"""Detects the kind of a data file, a format such as "csv", from its name or its first bytes."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from glassgate.tasks.data.files import STDIN, archive_members, open_file, suffix_of
from glassgate.tasks.data.lines import requested_encoding
from glassgate.tasks.data.records import rows_of_object
from glassgate.tasks.errors import UserError

SUFFIXES = {
    **{".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".xlsx": "xlsx", ".parquet": "parquet", ".pq": "parquet"},
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".txt": "text", ".py": "python"},
    **{".conllu": "conllu", ".conll": "columns", ".iob": "columns", ".iob2": "columns", ".bio": "columns"},
    **{".ts": "ts", ".npz": "npz", ".npy": "npy", ".mat": "mat", ".arff": "arff", ".tsf": "tsf"},
}
"""The kind of a file by its suffix."""

_HEAD_SIZE = 2**16  # bytes at the beginning of a file that are examined
_JSON_LIST = re.compile(r"\s*\[\s*[\[{]")
_SIGNATURES = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"MATLAB 5.0 MAT-file": "mat", b"\x89HDF\r\n": "mat"}


def detect_kind(path: str | Path) -> str:
    """Return the kind of a file, a value of `SUFFIXES` or "folder"; empty if it is unknown.

    Example:
        >>> detect_kind("train.conllu.gz")
        'conllu'
    """
    if str(path) == STDIN:
        return _kind_by_content(path)
    if Path(path).is_dir():
        return "folder"
    kind = SUFFIXES.get(suffix_of(path), "")
    return kind if kind not in ("", "json") else _kind_by_content(path) or kind  # .json can contain JSON lines


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
    tags = [line.lower() for line in lines if not line.startswith("#")] or [""]
    if tags[0].startswith("@relation"):
        return "tsf" if any(tag.startswith("@frequency") for tag in tags) else "arff"
    return "ts" if tags[0].startswith("@problemname") else ""


def _kind_of_json_object(lines: Sequence[str]) -> str:
    """The kind of JSON that begins with an object: "jsonl" for one object per line, or "json".

    The kind is "json" if the object spans several lines, or if it is the only one and contains a list of rows, columns,
    or labelled texts.
    """
    try:
        first = json.loads(lines[0])
    except ValueError:
        return "json"
    contains_lists = any(
        isinstance(value, list) and all(isinstance(item, list | dict) for item in value) for value in first.values()
    )
    return "json" if len(lines) == 1 and (contains_lists or rows_of_object(first) is not None) else "jsonl"
