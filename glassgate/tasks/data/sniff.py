"""Looks at a data file once: its kind, its dialect, its header, and its columns with the kinds of their values."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, islice
from pathlib import Path
from statistics import multimode
from typing import Any

from glassgate.extras import install_command
from glassgate.tasks.data.annotations import reject_unread_format
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.dialect import EXAMINED_LINES, Dialect, dialect_of
from glassgate.tasks.data.files import loading, readable_file, row_limit, version_of
from glassgate.tasks.data.kinds import (
    MIN_FITTING,
    NUMBER,
    WORD,
    Column,
    cell_text,
    is_number_or_time,
    names_columns,
)
from glassgate.tasks.data.lines import encoding_note, open_text, read_lines, requested_encoding
from glassgate.tasks.data.records import KEYED_KINDS, LabelNames, read_rows
from glassgate.tasks.errors import DataError

_MAX_LINES_BELOW = 20
_TEXT_KINDS = ("", "text", "csv", "tsv", "columns")
BINARY_KINDS = ("xlsx", "parquet", "npz", "npy", "mat", "folder")
"""Kinds of files that are not text."""
_NO_DIALECT = Dialect("", 0, ())

Cells = Iterator[tuple[int, list[Any]]]
"""The line number and the cells of each row; a blank row has no cells."""


@dataclass(frozen=True)
class Source:
    """A data file, and what its beginning shows.

    Attributes:
        path: the file
        kind: the kind of the file, see `detect.detect_kind`
        dialect: the dialect of a table of texts
        has_header: whether the first row names the columns
        columns: the columns with their first values; empty if the lines have no columns
        label_names: the names of the labels in columns that store labels as integers
        content: all rows, if they are not read from the file
    """

    path: str | Path
    kind: str
    dialect: Dialect = _NO_DIALECT
    has_header: bool = False
    columns: tuple[Column, ...] = ()
    label_names: LabelNames = field(default_factory=dict)
    content: Sequence[tuple[int, Any, LabelNames]] = ()

    @cached_property
    def encoding(self) -> str:
        """The encoding of a text file, if it is not UTF-8, as the end of a note."""
        return "" if self.kind in BINARY_KINDS else encoding_note(self.path)

    @property
    def separator(self) -> str:
        """The separator of several columns; empty if there are none."""
        return self.dialect.separator if len(self.columns) > 1 else ""

    @property
    def header(self) -> list[str]:
        """The cells of the first row of a table, without blanks at their ends; or the keys of rows."""
        if self.is_keyed:
            return [column.name for column in self.columns]
        if not self.dialect.header:
            raise DataError(self.path, None, "the file has only empty lines; give one with a header and a row of data")
        return [cell.strip("\ufeff \t\r\n") for cell in self.dialect.header]

    def of_kind(self, *kinds: str) -> list[Column]:
        """Return the columns of these kinds."""
        return [column for column in self.columns if column.kind in kinds]

    @property
    def is_numeric(self) -> bool:
        """Whether all columns contain numbers, except at most one column of labels at either end."""
        numbers = len(self.of_kind(NUMBER))
        has_labels = any(column.kind == WORD for column in self.columns[:1] + self.columns[-1:])
        return numbers > 0 and numbers >= len(self.columns) - has_labels

    @property
    def is_keyed(self) -> bool:
        """Whether the rows are mappings or lists, not rows of text."""
        return self.kind in (*KEYED_KINDS, "rows")

    def rows(self, start: int = 0) -> Cells:
        """Return an iterator over the rows of a table without the first `start` rows, or the values of rows with keys.

        Raises:
            DataError: see `read_lines`; a row has more or fewer cells than the first
        """
        if self.is_keyed:
            content = self.content or read_rows(self.path, self.kind)
            return ((number, self._values(number, row)) for number, row, _ in content)
        rows = _excel_rows(self.path) if self.kind == "xlsx" else _csv_rows(self.path, self.dialect, len(self.header))
        return islice(rows, start, None)

    def _values(self, number: int, row: Any) -> list[Any]:
        """The values of a row with keys, or of a list."""
        if isinstance(row, dict) and self.has_header:
            return [row.get(column.name) for column in self.columns]
        if isinstance(row, list) and not self.has_header and len(row) == (len(self.columns) or len(row)):
            return row
        got = f"{len(row)} values" if isinstance(row, list) else type(row).__name__
        expected = "an object" if self.has_header else f"a list of {len(self.columns)} values"
        raise DataError(self.path, number, f"expected {expected}, got {got}; write the same in each row")


def source_of(
    rows: Iterable[tuple[int, Any, LabelNames]], path: str | Path = "given rows", kind: str = "rows"
) -> Source:
    """Return the source of rows that are mappings or lists, such as those of a data frame."""
    content = [*rows]
    columns = _columns_of_rows([row for _, row, _ in content])
    has_names = not content or isinstance(content[0][1], dict)
    label_names = next((names for _, _, names in content), {})
    return Source(path, kind, _NO_DIALECT, has_names, columns, label_names, content)


def _columns_of_rows(rows: Sequence[Any]) -> tuple[Column, ...]:
    """The columns of rows that are mappings, or lists of one length."""
    if rows and all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows):
        rows = [{str(number): value for number, value in enumerate(row, start=1)} for row in rows]
    if not all(isinstance(row, dict) for row in rows):
        return ()
    columns = {key: [row.get(key) for row in rows] for key in dict.fromkeys(chain.from_iterable(rows))}
    return tuple(
        Column(key, groups=tuple(tuple(map(cell_text, each)) for each in values if isinstance(each, list)))
        if any(isinstance(each, list) for each in values)
        else Column(key, tuple(map(cell_text, values)))
        for key, values in columns.items()
    )


def sniff(path: str | Path, kind: str = "", names: Sequence[str] = (), separator: str | None = None) -> Source:
    """Look at a file. Another look at the same version of a file gives the same source without opening it.

    Args:
        kind: the kind of the file; detected if empty
        names: the names of columns that the first row should contain
        separator: the separator of the columns; detected if None
    """
    limit = row_limit()
    version = version_of(path), requested_encoding(), limit and limit.max_rows
    return _sniff(str(path), kind, tuple(names), separator, version)


@lru_cache(8)
def _sniff(path: str, kind: str, names: tuple[str, ...], separator: str | None, _version: object) -> Source:
    kind = kind or detect_kind(path)
    if kind in KEYED_KINDS:
        return replace(source_of(islice(read_rows(path, kind), EXAMINED_LINES), path, kind), content=())
    if kind == "xlsx":
        sheet = _excel_rows(path)
        dialect = Dialect("", 0, tuple(sheet[0][1]) if sheet else ("",))
        return _source(path, kind, dialect, [row for _, row in sheet[:EXAMINED_LINES] if row])
    if kind not in _TEXT_KINDS:
        return Source(path, kind)
    lines = [line for _, line in islice(read_lines(path), EXAMINED_LINES)]
    reject_unread_format(path, lines)
    found = dialect_of(lines, "\t" if kind == "tsv" else separator, names)
    if found is None:
        return Source(path, kind)
    first, *rows = found.rows(f"{line}\n" for line in lines[found.skipped_lines :])
    rows = [row for row in rows if not (_is_blank(row, found) or row[0].startswith("#"))]
    rows = _of_one_width([["", *first] if found.lacks_name else first, *rows])
    if len(found.header) == 1 and 2 * sum(is_number_or_time(row[0].strip()) for row in rows) < len(rows):
        rows = []  # lines of text
    return _source(path, kind, found, rows)


def _source(path: str, kind: str, dialect: Dialect, rows: Sequence[list[str]]) -> Source:
    if not rows:
        return Source(path, kind, dialect)
    has_header = len(rows) > 1 and names_columns(rows[0], rows[1:])
    names = rows[0] if has_header else [str(number + 1) for number in range(len(rows[0]))]
    body = rows[1:] if has_header else rows
    columns = (tuple(row[index].strip() for row in body) for index in range(len(names)))
    return Source(path, kind, dialect, has_header, tuple(map(Column, map(str.strip, names), columns)))


def _of_one_width(rows: Sequence[list[str]]) -> list[list[str]]:
    """The rows with the usual number of cells; none if too many have another number."""
    usual = max(multimode(map(len, rows)), default=0)
    fitting = [row for row in rows if len(row) == usual]
    return fitting if fitting and len(fitting) >= MIN_FITTING * len(rows) else []


def _csv_rows(path: str | Path, dialect: Dialect, width: int) -> Cells:
    has_blanks = dialect.separator == " "
    was_blank = False
    with open_text(path, newline=None) as file:
        reader: Any = dialect.rows(islice(file, dialect.skipped_lines, None), strict=True)
        try:
            for count, row in enumerate(reader, start=1):
                number = dialect.skipped_lines + (count if has_blanks else reader.line_num)
                row = ["", *row] if count == 1 and dialect.lacks_name else row
                blank = _is_blank(row, dialect)
                if len(row) != width and not blank:
                    if was_blank and _are_below_table([row, *islice(reader, _MAX_LINES_BELOW)], width):
                        return
                    quotes = f"put quotes around a cell with {dialect.separator!r} in it"
                    remedy = f"correct the line, or {'separate the columns by tabs' if has_blanks else quotes}"
                    got = f"{len(row)}; {remedy}"
                    raise DataError(path, number, f"expected {width} columns, as in the first line, got {got}")
                was_blank = blank
                yield number, [] if blank else row
        except csv.Error as error:
            number = reader.line_num + dialect.skipped_lines
            raise DataError(path, number, f"expected CSV, but it does not parse: {error}; check the quotes") from None


def _are_below_table(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether the last rows of a file are text below a table, such as its source: they have half its cells at most."""
    return len(rows) <= _MAX_LINES_BELOW and all(2 * len(row) <= width for row in rows)


def _is_blank(row: Sequence[str], dialect: Dialect) -> bool:
    """Whether a row is blank or, in a table in Markdown, the line of dashes below the header."""
    text = "".join(row).strip("\ufeff \t\r\n").replace(" ", "")
    return not text or (dialect.separator == "|" and "-" in text and not text.strip("-:"))


def _excel_rows(path: str | Path) -> list[tuple[int, list[str]]]:
    """The rows of the first sheet of a workbook, with their cells as text, and without titles above the header.

    Dates are in the ISO form. They have a time of day unless it is midnight.
    """
    sheet, _ = read_excel(path)
    strings = sheet.astype("string").fillna("")
    texts = strings.apply(lambda column: column.str.removesuffix(" 00:00:00")).to_numpy().tolist()
    filled = [sum(bool(cell.strip()) for cell in row) for row in texts]
    usual = max(multimode(filter(None, filled)), default=0)
    first = filled.index(usual) if usual else 0
    first = first if all(2 * count <= usual for count in filled[:first]) else 0
    rows = list(enumerate(texts, start=1))[first:]
    return [(number, row if any(map(str.strip, row)) else []) for number, row in rows]


def read_excel(path: str | Path) -> tuple[Any, str]:
    """Return the first sheet of a workbook as a pandas frame without names, and a note about the sheet."""
    limit = row_limit()
    readable_file(path)
    sheet, note = _load_sheet(str(path), limit and limit.max_rows, version_of(path))
    if limit is not None and len(sheet) > limit.max_rows:
        limit.is_exceeded = True
    return sheet[: limit and limit.max_rows], note


@lru_cache(2)  # detecting the columns and reading the rows need the same sheet
def _load_sheet(path: str, max_rows: int | None, _version: object) -> tuple[Any, str]:
    """The first sheet of a workbook, with one row more than `max_rows` if it has more."""
    import pandas as pd

    nrows = None if max_rows is None else max_rows + 1
    with loading(path, "an Excel workbook", "save it again, or as CSV"):
        try:
            with pd.ExcelFile(readable_file(path), engine="openpyxl") as book:
                names = book.sheet_names
                sheet = pd.read_excel(book, sheet_name=names[0], nrows=nrows, header=None, dtype=object)
        except ImportError:
            remedy = f"{install_command('openpyxl')}, or save the sheet as CSV"
            raise DataError(path, None, f"reading .xlsx needs openpyxl; {remedy}") from None
    return sheet, f", sheet {names[0]!r}" + (f", the first of {len(names)}" if len(names) > 1 else "")
