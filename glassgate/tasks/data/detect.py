"""Detects the kind of a data file from its name or its first bytes, and the dialect of a table.

The kind is a file format, such as "csv". The dialect is the way in which a text file separates and quotes its cells.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassgate.tasks.data.files import STDIN, archive_members, open_file, suffix_of
from glassgate.tasks.data.lines import read_lines, requested_encoding
from glassgate.tasks.errors import DataError, UserError

if TYPE_CHECKING:
    from _csv import Reader

SUFFIXES = {
    **{".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".xlsx": "xlsx", ".parquet": "parquet", ".pq": "parquet"},
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".txt": "text", ".py": "python"},
    **{".conllu": "conllu", ".conll": "columns", ".iob": "columns", ".iob2": "columns", ".bio": "columns"},
    **{".ts": "ts", ".npz": "npz", ".npy": "npy", ".mat": "mat", ".arff": "arff", ".tsf": "tsf"},
}
"""The kind of a file by its suffix."""

_MAX_CELL_LENGTH = 2**31 - 1  # characters of a CSV cell; the default limit of Python is 131,072
_HEAD_SIZE = 2**16  # bytes at the beginning of a file that are examined
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

    The kind is "json" if the object spans several lines, or if it is the only one and contains a list of rows, or
    columns.
    """
    try:
        first = json.loads(lines[0])
    except ValueError:
        return "json"
    contains_rows = any(
        isinstance(value, list) and all(isinstance(item, list | dict) for item in value) for value in first.values()
    )
    return "json" if len(lines) == 1 and (contains_rows or are_columns(first)) else "jsonl"


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


SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}
"""The separators that are detected, and their names in messages. Any number of blanks separates columns of numbers."""

_EXAMINED_LINES = 1000  # of a table
_MIN_OF_ONE_WIDTH = 0.9  # the fraction of the lines that have the usual number of cells
_MAX_TITLE_LINES = 20
_DOUBLED_QUOTES = re.compile('""')
_TIME = re.compile(r"\d{1,4}[-/.:]\d{1,2}([-/.:]\d{1,4})?(\.\d+)?")
_QUOTED_TEXT = re.compile(r'"[^"]*"')
_QUOTED_CELL = re.compile(r'"(?:[^"]|"")*"')
_QUOTED_CELL_OF_SEVERAL_LINES = re.compile(r'(?<![^\t\n])"(?:[^"]|"")*\n(?:[^"]|"")*"(?![^\t\n])')


@dataclass(frozen=True)
class Dialect:
    """The dialect of a table.

    Attributes:
        separator: the separator of the columns
        skipped_lines: the number of lines before the first row: blank lines, comments, or the line `sep=;` of Excel
        header: the cells of the first row
        has_quotes: whether quotes enclose cells; in TSV they may be ordinary characters
        skips_blanks: whether blanks before the quotes of a cell are left out
    """

    separator: str
    skipped_lines: int
    header: tuple[str, ...]
    has_quotes: bool = True
    skips_blanks: bool = False


def detect_dialect(path: str | Path, separator: str | None = None, names: Sequence[str] = ()) -> Dialect:
    """Detect the dialect of a table.

    Args:
        separator: the separator of the columns; detected if None
        names: the names of columns that the first row should contain

    Raises:
        DataError: see `read_lines`; the file has only empty lines
    """
    lines = [line for _, line in islice(read_lines(path), _EXAMINED_LINES)]
    skipped_lines = 0
    if lines[0].lower().startswith("sep=") and len(lines[0]) == 5:
        separator, skipped_lines = lines[0][4], 1
    while skipped_lines < len(lines) - 1 and not lines[skipped_lines].strip():
        skipped_lines += 1
    skipped_lines += _count_comments(lines[skipped_lines:], separator, names)
    lines = lines[skipped_lines:]
    if not any(map(str.strip, lines)):
        raise DataError(path, None, "the file has only empty lines; give one with a header and a row of data")
    separator = separator or _detect_separator(lines, names)
    titles = _count_titles(lines, separator)
    skipped_lines, lines = skipped_lines + titles, lines[titles:]
    if separator == " ":
        return Dialect(separator, skipped_lines, tuple(lines[0].split()), False)
    has_quotes = separator != "\t" or quotes_enclose_cells(lines)
    rows = csv_rows((f"{line}\n" for line in lines), delimiter=separator, quoting=QUOTING[has_quotes])
    try:
        header = next(rows, [""])
    except csv.Error:
        header = lines[0].split(separator)
    skips_blanks = 2 * sum(f'{separator} "' in _DOUBLED_QUOTES.sub("", line) for line in lines) > len(lines)
    header = [cell.lstrip() for cell in header] if skips_blanks else header
    return Dialect(separator, skipped_lines, tuple(header), has_quotes, skips_blanks)


def _count_comments(lines: Sequence[str], separator: str | None, names: Sequence[str]) -> int:
    """The number of lines of comments before a table: they begin with `#` and have another number of cells."""
    comments = list(takewhile(lambda line: line.startswith("#") or not line.strip(), lines))
    rows = lines[len(comments) :]
    if not comments or not rows:
        return 0
    separator = separator or _detect_separator(rows, names)
    width = len(rows[0].split(separator))
    return len(comments) if width > 1 and all(len(line.split(separator)) != width for line in comments) else 0


QUOTING: Any = {True: csv.QUOTE_MINIMAL, False: csv.QUOTE_NONE}
"""The quoting rule of `csv.reader` by `Dialect.has_quotes`."""


def csv_rows(lines: Iterable[str], **options: Any) -> "Reader":
    """Return a `csv.reader` that accepts long cells, such as whole articles."""
    csv.field_size_limit(_MAX_CELL_LENGTH)
    return csv.reader(lines, **options)


def _detect_separator(lines: Sequence[str], names: Sequence[str]) -> str:
    """Return a separator with which the first row contains all names.

    Otherwise return a separator with which the rows have the same number of cells: all of them or, failing that, most
    of them. If no separator fits, return the most frequent one in the first row, a blank for columns of numbers, or a
    comma.
    """
    for separator in SEPARATORS if names else ():
        cells = [cell.strip().strip('"') for cell in lines[0].split(separator)]
        if all(name in cells for name in names):
            return separator
    rows = [_QUOTED_TEXT.sub("", line) for line in lines if line.strip()]
    fractions = {separator: _fraction_of_one_width(rows, separator) for separator in ("\t", ";", "|", ",")}
    for least in (1.0, _MIN_OF_ONE_WIDTH):
        if fitting := [separator for separator, fraction in fractions.items() if fraction >= least]:
            return fitting[0]
    counts = {separator: lines[0].count(separator) for separator in fractions}
    if max(counts.values()):
        return max(counts, key=counts.__getitem__)
    cells = [cell for row in rows for cell in row.split()]
    is_numeric = 2 * sum(map(is_number_or_time, cells)) >= len(cells) > len(rows)
    return " " if is_numeric and _fraction_of_one_width(rows, None) >= _MIN_OF_ONE_WIDTH else ","


def _fraction_of_one_width(rows: Sequence[str], separator: str | None) -> float:
    """The fraction of the rows with the usual number of cells; 0 if that is one."""
    ((width, count),) = Counter(len(row.split(separator)) for row in rows).most_common(1)
    return count / len(rows) if width > 1 else 0.0


def _count_titles(lines: Sequence[str], separator: str) -> int:
    """The number of lines before the header of a table that have at most half of its cells, such as a title."""
    rows = [(_QUOTED_TEXT.sub("", line).split(None if separator == " " else separator), line) for line in lines]
    widths = [len(cells) if line.strip() else 0 for cells, line in rows]
    ((usual, count),) = Counter(filter(None, widths)).most_common(1)
    first = widths.index(usual)
    are_titles = all(
        2 * width <= usual and line.count('"') % 2 == 0 for width, line in zip(widths[:first], lines, strict=False)
    )
    is_table = count >= _MIN_OF_ONE_WIDTH * sum(width > 0 for width in widths[first:])
    return first if first <= _MAX_TITLE_LINES and is_table and are_titles else 0


def is_number(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return abs(float(text)) < float("inf")
    except ValueError:
        return False


def is_number_or_time(text: str) -> bool:
    """Whether a text is a finite number, or digits in the form of a date or of a time of day."""
    return is_number(text) or bool(_TIME.fullmatch(text))


def quotes_enclose_cells(lines: Sequence[str]) -> bool:
    """Whether quotes enclose cells of a TSV, instead of being ordinary characters."""
    cells = [cell for line in lines for cell in line.split("\t") if '"' in cell]
    widths = {len(line.split("\t")) for line in lines if line.strip()}
    if len(widths) > 1:
        return bool(_QUOTED_CELL_OF_SEVERAL_LINES.search("\n".join(lines)))
    return bool(cells) and all(_QUOTED_CELL.fullmatch(cell) for cell in cells)
