"""Detect the kind of a data file, by its name or its first bytes, and how the cells of a table are separated."""

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from glassgate.tasks.data.files import STDIN, members, opened, read_lines, suffix_of
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


SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""The separators of a table's columns that are detected, and what messages call them."""

_LINES = 1000  # of a table that are looked at
_WHOLE_CELL = re.compile(r'"(?:[^"]|"")*"')
_QUOTED = re.compile(r'(?<![^\t\n])"(?:[^"]|"")*\n(?:[^"]|"")*"(?![^\t\n])')


@dataclass(frozen=True)
class Dialect:
    """How the cells of a table are separated.

    Attributes:
        separator: between the columns
        before: lines before the first row, such as `sep=;`, which Excel writes
        header: the cells of the first row
        quoted: whether quotes enclose cells; in TSV they may be characters like others
    """

    separator: str
    before: int
    header: tuple[str, ...]
    quoted: bool = True


def dialect_of(path: str | Path, separator: str | None = None, names: Sequence[str] = ()) -> Dialect:
    """Detect how a table's cells are separated.

    Args:
        separator: of its columns; detected if None
        names: columns that the first row is expected to name

    Raises:
        DataError: see `read_lines`
    """
    lines = [line for _, line in islice(read_lines(path), _LINES)]
    before = 0
    if lines[0].lower().startswith("sep=") and len(lines[0]) == 5:
        separator, before = lines[0][4], 1
    while before < len(lines) - 1 and not lines[before].strip():
        before += 1
    lines = lines[before:]
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
    """The separator under which the first row has the names; else the one that cuts all rows alike; else a comma."""
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
    """Whether quotes enclose cells of a TSV: they do where a cell goes on in the next line, or none stands inside."""
    cells = [cell for line in lines for cell in line.split("\t") if '"' in cell]
    widths = {len(line.split("\t")) for line in lines if line.strip()}
    if len(widths) > 1:
        return bool(_QUOTED.search("\n".join(lines)))
    return bool(cells) and all(_WHOLE_CELL.fullmatch(cell) for cell in cells)
