"""Detect the kind of a data file: by its name, or by its first bytes, as for standard input and unknown suffixes."""

import json
from pathlib import Path

from glassgate.tasks.data.files import STDIN, members, opened, suffix_of
from glassgate.tasks.errors import UserError

SUFFIXES = {
    **{".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".xlsx": "xlsx", ".parquet": "parquet", ".pq": "parquet"},
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".txt": "text", ".py": "python"},
    **{".conllu": "conllu", ".conll": "columns", ".iob": "columns", ".iob2": "columns", ".bio": "columns"},
    **{".ts": "ts", ".npz": "npz", ".npy": "npy", ".mat": "mat"},
}
"""The kind of a file by its suffix."""

_HEAD = 2**16  # bytes that are looked at
_SIGNATURES = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"MATLAB 5.0 MAT-file": "mat", b"\x89HDF\r\n": "mat"}


def kind_of(path: str | Path) -> str:
    """Return the kind of a file, a value of `SUFFIXES` or "folder"; empty if neither name nor content shows it.

    Example:
        >>> kind_of("train.conllu.gz")
        'conllu'
    """
    if str(path) != STDIN and Path(path).is_dir():
        return "folder"
    suffix = "" if str(path) == STDIN else suffix_of(path)
    return SUFFIXES.get(suffix) or _by_content(path)


def _by_content(path: str | Path) -> str:
    """The kind that the first bytes show: archives and arrays by their signature, JSON, and sktime's series."""
    names = members(path)
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    if "xl/workbook.xml" in names:
        return "xlsx"
    try:
        with opened(path) as file:
            head = file.read(_HEAD)
    except UserError:
        return ""
    for mark, kind in _SIGNATURES.items():
        if head.startswith(mark):
            return kind
    lines = [line for line in head.decode(errors="replace").lstrip("\ufeff").splitlines() if line.strip()]
    if lines and lines[0].lstrip().startswith("["):
        return "json" if _is_json_list(lines) else ""
    if lines and lines[0].startswith("{"):
        return "jsonl" if _is_json(lines[0]) else "json"
    tags = [line for line in lines if not line.startswith("#")]
    return "ts" if tags and tags[0].lower().startswith("@problemname") else ""


def _is_json_list(lines: list[str]) -> bool:
    """Whether a text that begins with a bracket goes on as a list of JSON."""
    after = "".join(lines).lstrip()[1:].lstrip()
    return after[:1] in ("{", "[")


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
