"""Examines the beginning of a text file once: its separator, its header, and the kind of values in each column.

| kind of a column | values |
|---|---|
| number | numbers, of which some may be missing |
| time | dates or times of day |
| word | single words |
| text | texts of several words |
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from statistics import multimode
from typing import Any

from glassgate.tasks.data.detect import detect_kind, is_number, is_number_or_time
from glassgate.tasks.data.dialect import EXAMINED_LINES, dialect_of
from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.marked_numbers import GROUP_MARK, without_mark
from glassgate.tasks.data.records import (
    KEYED_KINDS,
    LABEL_COLUMNS,
    TAG_COLUMNS,
    TEXT_COLUMNS,
    TOKEN_COLUMNS,
    read_rows,
    read_table,
)

NUMBER, TIME, WORD, TEXT = "number", "time", "word", "text"
MISSING_NUMBERS = (
    *("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NaT", "null", "NULL", "None", "?", ".", "..", "..."),
    *("-", "--", "---", "\u2013", "\u2014"),
)
"""The texts that denote a missing number."""

_MIN_COUNTED, _MIN_YEARS = 8, 4  # columns whose names are consecutive numbers, or years
_FIRST_YEAR = 1500
_MAX_NAME, _MAX_NAME_WORDS = 40, 4  # characters and words of the name of a column
_MIN_FITTING = 0.95  # the fraction of the rows that have the usual number of cells, and of the cells that fit a kind
_MONTH = "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_WEEKDAY = "((Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?"
_DATE = re.compile(
    r"\d{1,4}[-/.年]\d{1,2}([-/.月]\d{1,4}日?)?([ T].*)?|(19|20)\d\d[01]\d[0-3]\d|\d{1,2}:\d\d(:\d\d(\.\d+)?)?"
    r"|\d{4}[ -]?Q[1-4]|Q[1-4][ /-]?\d{4}|\d{4}[ -]?[MW]\d{2}"
    r"|[^\W\d_]{3,}\.? (19|20)\d\d"
    rf"|{_WEEKDAY}(\d{{1,2}}[ -])?{_MONTH}([ -]\d{{1,2}},?)?[ -]\d{{2,4}}( \d{{1,2}}:\d\d.*)?"
)
_SENTENCE = re.compile("[\u3040-\u30ff\u3400-\u9fff]{6}")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_USUAL_NAMES = {"id", "source", "target", *LABEL_COLUMNS, *TAG_COLUMNS, *TEXT_COLUMNS, *TOKEN_COLUMNS}
_TEXT_KINDS = ("", "text", "csv", "tsv", "columns")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: the cell of the header; without a header the number of the column, from 1
        values: the examined values
    """

    name: str
    values: tuple[str, ...] = ()

    @cached_property
    def kind(self) -> str:
        """One of the kinds above."""
        return kind_of(self.values)

    @cached_property
    def distinct(self) -> int:
        """The number of distinct values."""
        return len({*self.values})

    @property
    def may_be_labels(self) -> bool:
        """Whether the values repeat as those of labels do: half as many distinct values as rows, or fewer."""
        return self.distinct > 1 and 2 * self.distinct <= len(self.values)

    @property
    def mean_words(self) -> float:
        """The mean number of words of a value."""
        return sum(len(value.split()) for value in self.values) / max(1, len(self.values))

    @property
    def are_whole_numbers(self) -> bool:
        """Whether all values are whole numbers, such as 2, -1 or 1.0."""
        return self.kind == NUMBER and all(is_number(value) and float(value).is_integer() for value in self.values)

    @property
    def counts_rows(self) -> bool:
        """Whether each value is the previous one plus 1."""
        if not self.are_whole_numbers or len(self.values) < 2:
            return False
        first = float(self.values[0])
        return all(float(value) == first + k for k, value in enumerate(self.values))


@dataclass(frozen=True)
class Source:
    """The beginning of a file.

    Attributes:
        kind: the kind of the file, see `detect.detect_kind`
        separator: the separator of the cells; None for white space; empty if the lines have no columns
        has_header: whether the first row names the columns
        columns: the columns; empty if the lines have no columns
        has_quotes: whether quotes enclose cells
    """

    kind: str
    separator: str | None = ""
    has_header: bool = False
    columns: tuple[Column, ...] = ()
    has_quotes: bool = False

    def of_kind(self, *kinds: str) -> list[Column]:
        """Return the columns of these kinds."""
        return [column for column in self.columns if column.kind in kinds]

    @property
    def is_numeric(self) -> bool:
        """Whether all columns contain numbers, except at most one column of labels at either end."""
        ends = {id(column) for column in (self.columns[:1] + self.columns[-1:]) if column.kind == WORD}
        return bool(self.of_kind(NUMBER)) and len(self.of_kind(NUMBER)) >= len(self.columns) - min(1, len(ends))


def sniff(path: str | Path) -> Source:
    """Examine the beginning of a file.

    Raises:
        DataError: see `read_lines`
    """
    kind = detect_kind(path)
    if kind in KEYED_KINDS:
        rows = [row for _, row, _ in islice(read_rows(path, kind), EXAMINED_LINES)]
        return Source(kind, has_header=True, columns=columns_of_rows(rows))
    if kind == "xlsx":
        return _source(kind, "", [row for _, row in islice(read_table(path, kind)[1], EXAMINED_LINES) if row])
    if kind not in _TEXT_KINDS:
        return Source(kind)
    lines = [line for _, line in islice(read_lines(path), EXAMINED_LINES) if line.strip("\ufeff \t")]
    lines = [line for line in lines if not line.startswith("#")] or lines
    dialect = dialect_of(lines, "\t" if kind == "tsv" else None)
    if dialect is None:
        return Source(kind)
    rows = list(dialect.rows(f"{line}\n" for line in lines[dialect.skipped_lines :]))
    rows = _of_one_width([["", *rows[0]], *rows[1:]] if dialect.lacks_name else rows)
    is_one_column = bool(rows) and len(rows[0]) == 1
    if is_one_column and 2 * sum(is_number_or_time(row[0].strip()) for row in rows) < len(rows):
        return Source(kind)
    separator = None if is_one_column or dialect.separator == " " else dialect.separator
    return replace(_source(kind, separator, rows), has_quotes=bool(rows) and dialect.has_quotes)


def columns_of_rows(rows: Sequence[Any]) -> tuple[Column, ...]:
    """Return the columns of rows that are mappings: those of texts, numbers and truth values, not of lists."""
    mappings = [row for row in rows if isinstance(row, dict)]
    if len(mappings) < len(rows) or not mappings:
        return ()
    keys = [key for key, value in mappings[0].items() if not isinstance(value, list | dict)]
    columns = {key: ["" if (value := row.get(key)) is None else str(value) for row in mappings] for key in keys}
    return tuple(Column(key.strip(), tuple(values)) for key, values in columns.items())


def _source(kind: str, separator: str | None, rows: Sequence[list[str]]) -> Source:
    if not rows:
        return Source(kind)
    has_header = len(rows) > 1 and names_columns(rows[0], rows[1:])
    names = rows[0] if has_header else [str(number + 1) for number in range(len(rows[0]))]
    body = rows[1:] if has_header else rows
    columns = (tuple(row[index].strip() for row in body) for index in range(len(names)))
    return Source(kind, separator, has_header, tuple(map(Column, map(str.strip, names), columns)))


def kind_of(values: Sequence[str]) -> str:
    """Return the kind of the values of a column."""
    present = [value for value in values if value not in MISSING_NUMBERS]
    if not present:
        return NUMBER
    for kind, fits in ((TIME, _is_time), (NUMBER, _is_number_of_any_country)):
        if sum(map(fits, present)) >= _MIN_FITTING * len(present):
            return kind
    return TEXT if sum(map(is_text, present)) > (1 - _MIN_FITTING) * len(present) else WORD


def is_text(text: str) -> bool:
    """Whether a text has several words, which Chinese and Japanese write without blanks."""
    return " " in text or bool(_SENTENCE.search(text))


def _is_time(text: str) -> bool:
    return bool(_DATE.fullmatch(text)) and not is_number(text)


def _is_number_of_any_country(text: str) -> bool:
    text = without_mark(text)[0]
    text = text.replace(",", "") if _THOUSANDS.fullmatch(text) else text
    text = re.sub(GROUP_MARK, "", text)
    return is_number(text) or is_number(text.replace(".", "").replace(",", "."))


def names_columns(first: Sequence[str], rows: Sequence[Sequence[str]], needs_numbers: bool = False) -> bool:
    """Whether the first row of a table names the columns of the rows below.

    It is blank or contains a usual name; or a column of numbers or times has neither in the first row, or its numbers
    count the columns, such as years; or all its cells are short, and a column whose values repeat lacks the one in this
    row. Without rows below, it is a header unless it contains only numbers.

    Args:
        needs_numbers: whether a table without columns of numbers is not read; its first row is taken for a header
    """
    first = [cell.strip() for cell in first]
    if not rows:
        return any(kind_of([cell]) != NUMBER for cell in first)
    if not any(first) or any(name.lower() in _USUAL_NAMES for name in first):
        return True
    columns = [(name, [row[index].strip() for row in rows]) for index, name in enumerate(first)]
    filled = [(name, values, kind_of(values)) for name, values in columns if any(values)]
    numeric = [(name, kind) for name, _, kind in filled if kind in (NUMBER, TIME) and name]
    if numeric:
        numbers = [int(name) for name, _ in numeric if name.isdecimal()]
        least = _MIN_YEARS if numbers and numbers[0] >= _FIRST_YEAR else _MIN_COUNTED
        counts = len(numbers) >= least and numbers == list(range(numbers[0], numbers[0] + len(numeric)))
        return counts or any(kind_of([name]) != kind for name, kind in numeric)
    if needs_numbers:
        return True
    repeating = [(name, values) for name, values, _ in filled if 2 * len({*values}) <= len(values)]
    are_short = all(len(name) <= _MAX_NAME and len(name.split()) <= _MAX_NAME_WORDS for name in first)
    return bool(repeating) and are_short and not any(name in values for name, values in repeating)


def _of_one_width(rows: Sequence[list[str]]) -> list[list[str]]:
    """The rows with the usual number of cells; none if too many have another number."""
    widths = [len(row) for row in rows]
    usual = max(multimode(widths), default=0)
    fitting = [row for row in rows if len(row) == usual]
    return fitting if fitting and len(fitting) >= _MIN_FITTING * len(rows) else []
