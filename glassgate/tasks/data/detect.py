"""Detects the kind of a data file by its name or its first bytes, and the dialect of a table."""

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from glassgate.tasks.data.files import STDIN, members, opened, suffix_of
from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.errors import DataError, UserError

SUFFIXES = {
    **{".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".xlsx": "xlsx", ".parquet": "parquet", ".pq": "parquet"},
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".txt": "text", ".py": "python"},
    **{".conllu": "conllu", ".conll": "columns", ".iob": "columns", ".iob2": "columns", ".bio": "columns"},
    **{".ts": "ts", ".npz": "npz", ".npy": "npy", ".mat": "mat"},
}
"""The kind of a file by its suffix."""

_HEAD = 2**16  # bytes that are examined
_JSON_LIST = re.compile(r"\s*\[\s*[\[{]")
_SIGNATURES = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"MATLAB 5.0 MAT-file": "mat", b"\x89HDF\r\n": "mat"}


def kind_of(path: str | Path) -> str:
    """Return the kind of a file, a value of `SUFFIXES` or "folder"; empty if it is unknown.

    Example:
        >>> kind_of("train.conllu.gz")
        'conllu'
    """
    if str(path) != STDIN and Path(path).is_dir():
        return "folder"
    kind = "" if str(path) == STDIN else SUFFIXES.get(suffix_of(path), "")
    return (kind if kind != "json" else "") or _by_content(path) or kind  # .json can contain JSON lines


def _by_content(path: str | Path) -> str:
    """The kind by the first bytes: signatures of archives and arrays, JSON, and the tags of sktime's .ts."""
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
    text = head.decode(errors="replace").lstrip("\ufeff")
    if _JSON_LIST.match(text):
        return "json"
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("{"):
        return _kind_of_objects(lines)
    tags = [line for line in lines if not line.startswith("#")]
    return "ts" if tags and tags[0].lower().startswith("@problemname") else ""


def _kind_of_objects(lines: Sequence[str]) -> str:
    """The kind of JSON that begins with an object: "json" if it is the only one and contains rows, or is not a line."""
    try:
        first = json.loads(lines[0])
    except ValueError:
        return "json"
    contains_rows = any(
        isinstance(value, list) and all(isinstance(each, list | dict) for each in value) for value in first.values()
    )
    return "json" if len(lines) == 1 and contains_rows else "jsonl"


SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""The separators that are detected, and their names in messages."""

_LINES = 1000  # lines of a table that are examined
_WHOLE_CELL = re.compile(r'"(?:[^"]|"")*"')
_QUOTED = re.compile(r'(?<![^\t\n])"(?:[^"]|"")*\n(?:[^"]|"")*"(?![^\t\n])')


@dataclass(frozen=True)
class Dialect:
    """The dialect of a table.

    Attributes:
        separator: the separator of the columns
        before: the number of lines before the first row, such as `sep=;`, which Excel writes
        header: the cells of the first row
        quoted: whether quotes enclose cells; in TSV they may be ordinary characters
    """

    separator: str
    before: int
    header: tuple[str, ...]
    quoted: bool = True


def dialect_of(path: str | Path, separator: str | None = None, names: Sequence[str] = ()) -> Dialect:
    """Detect the dialect of a table.

    Args:
        separator: the separator of the columns; detected if None
        names: the names of columns that the first row should contain

    Raises:
        DataError: see `read_lines`; the file has only empty lines
    """
    lines = [line for _, line in islice(read_lines(path), _LINES)]
    before = 0
    if lines[0].lower().startswith("sep=") and len(lines[0]) == 5:
        separator, before = lines[0][4], 1
    while before < len(lines) - 1 and not lines[before].strip():
        before += 1
    lines = lines[before:]
    if not any(map(str.strip, lines)):
        raise DataError(path, None, "the file has only empty lines; give one with a header and a row of data")
    separator = separator or _separator(lines, names)
    quoted = separator != "\t" or _has_quotes(lines)
    cells = csv.reader((f"{line}\n" for line in lines), delimiter=separator, quoting=QUOTING[quoted])
    try:
        header = next(cells, [""])
    except csv.Error:
        header = lines[0].split(separator)
    return Dialect(separator, before, tuple(header), quoted)


QUOTING: Any = {True: csv.QUOTE_MINIMAL, False: csv.QUOTE_NONE}


def _separator(lines: Sequence[str], names: Sequence[str]) -> str:
    """The separator for which the first row has the names, or all rows have equally many cells; a comma otherwise."""
    for separator in SEPARATORS if names else ():
        cells = [cell.strip().strip('"') for cell in lines[0].split(separator)]
        if all(name in cells for name in names):
            return separator
    plain = [line for line in lines if line.strip() and '"' not in line]
    for separator in ("\t", ";", "|", ","):
        widths = {len(line.split(separator)) for line in plain}
        if len(widths) == 1 and widths > {1}:
            return separator
    counts = {separator: lines[0].count(separator) for separator in SEPARATORS}
    return max(counts, key=counts.__getitem__) if max(counts.values()) else ","


def _has_quotes(lines: Sequence[str]) -> bool:
    """Whether quotes enclose cells of a TSV: a quoted cell spans lines, or all quotes are at the ends of cells."""
    cells = [cell for line in lines for cell in line.split("\t") if '"' in cell]
    widths = {len(line.split("\t")) for line in lines if line.strip()}
    if len(widths) > 1:
        return bool(_QUOTED.search("\n".join(lines)))
    return bool(cells) and all(_WHOLE_CELL.fullmatch(cell) for cell in cells)
