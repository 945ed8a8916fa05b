"""The columns of a table: the kind of values in each, and whether the first row names them.

| kind of a column | values |
|---|---|
| number | numbers, of which some may be missing |
| time | dates or times of day |
| word | single words |
| text | texts of several words |
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from glassgate.tasks.data.detect import is_number
from glassgate.tasks.data.marked_numbers import GROUP_MARK, parse_mark
from glassgate.tasks.data.records import LABEL_COLUMNS, TAG_COLUMNS, TEXT_COLUMNS, TOKEN_COLUMNS

NUMBER, TIME, WORD, TEXT = "number", "time", "word", "text"
MISSING_NUMBERS = (
    *("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NaT", "null", "NULL", "None", "?", ".", "..", "..."),
    *("-", "--", "---", "\u2013", "\u2014"),
)
"""The texts that denote a missing number."""

_MIN_COUNTED, _MIN_YEARS = 8, 4  # columns whose names are consecutive numbers, or years
_FIRST_YEAR = 1500
_MAX_NAME, _MAX_NAME_WORDS = 40, 4  # characters and words of the name of a column
MIN_FITTING = 0.95  # the fraction of the rows that have the usual number of cells, and of the cells that fit a kind
_MONTH = "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_WEEKDAY = "((Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?"
_DATE = re.compile(
    r"\d{1,4}[-/.年]\d{1,2}([-/.月]\d{1,4}日?)?([ T]+\d.*)?|(19|20)\d\d[01]\d[0-3]\d|\d{1,2}:\d\d(:\d\d(\.\d+)?)?"
    r"|\d{4}[ -]?Q[1-4]|Q[1-4][ /-]?\d{4}|\d{4}[ -]?[MW]\d{2}"
    r"|[^\W\d_]{3,}\.? (19|20)\d\d"
    rf"|{_WEEKDAY}(\d{{1,2}}[ -])?{_MONTH}([ -]\d{{1,2}},?)?[ -]\d{{2,4}}( \d{{1,2}}:\d\d.*)?"
)
_NAME = re.compile(r"[^\W\d]\w*")
_SENTENCE = re.compile("[\u3040-\u30ff\u3400-\u9fff]{6}")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{2,3})*,\d{3}(\.\d+)?")  # also lakhs: 12,34,567
_USUAL_NAMES = {"id", "source", "target", *LABEL_COLUMNS, *TAG_COLUMNS, *TEXT_COLUMNS, *TOKEN_COLUMNS}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: the cell of the header; without a header the number of the column, from 1
        values: the examined values
        groups: the values of each sequence, in files with a token per row; or the values of each cell that is a list
    """

    name: str
    values: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()

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
        numbers = [parse_mark(value).number for value in self.values]
        return self.kind == NUMBER and all(is_number(number) and float(number).is_integer() for number in numbers)

    @property
    def counts_rows(self) -> bool:
        """Whether each value is the previous one plus 1."""
        if not self.are_whole_numbers or len(self.values) < 2:
            return False
        numbers = [float(parse_mark(value).number) for value in self.values]
        return all(number == numbers[0] + k for k, number in enumerate(numbers))


def columns_of_rows(rows: Sequence[Any]) -> tuple[Column, ...]:
    """Return the columns of rows that are mappings, or lists of one length."""
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


def cell_text(value: Any) -> str:
    """Return the value of a cell as text; empty if it is missing."""
    return "" if value is None else str(value)


def number_or_nan(text: str) -> float:
    """Return the number in a cell; NaN if it is missing.

    Raises:
        ValueError: the cell contains anything else
    """
    text = text.strip()
    return float("nan") if text in MISSING_NUMBERS else float(text)


def kind_of(values: Sequence[str]) -> str:
    """Return the kind of the values of a column."""
    present = [value for value in values if value not in MISSING_NUMBERS]
    if not present:
        return NUMBER
    for kind, fits in ((TIME, _is_time), (NUMBER, _is_number_of_any_country)):
        if sum(map(fits, present)) >= MIN_FITTING * len(present) and (kind == TIME or _share_unit(present)):
            return kind
    return TEXT if sum(map(is_text, present)) > (1 - MIN_FITTING) * len(present) else WORD


def _share_unit(values: Sequence[str]) -> bool:
    """Whether no two numbers have different units, such as km and m; currencies may differ, which reading reports."""
    return len({parse_mark(value).unit for value in values} - {""}) < 2


def is_text(text: str) -> bool:
    """Whether a text has several words, which Chinese and Japanese write without blanks."""
    return " " in text or bool(_SENTENCE.search(text))


def _is_time(text: str) -> bool:
    return bool(_DATE.fullmatch(text)) and not is_number(text)


def _is_number_of_any_country(text: str) -> bool:
    text = parse_mark(text).number
    text = text.replace(",", "") if _THOUSANDS.fullmatch(text) else text
    text = re.sub(GROUP_MARK, "", text)
    return is_number(text) or is_number(text.replace(".", "").replace(",", "."))


def names_columns(first: Sequence[str], rows: Sequence[Sequence[str]], needs_numbers: bool = False) -> bool:
    """Whether the first row of a table names the columns of the rows below.

    It is blank or contains a usual name; or a column of numbers or times has neither in the first row, or its numbers
    count the columns, such as years; or all its cells are short, and a column whose values repeat lacks the one in this
    row; or its cells are single words, and nearly all cells below are texts. Without rows below, it is a header unless
    it contains only numbers.

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
    texts = [value for _, values, _ in filled for value in values]
    if sum(map(is_text, texts)) >= MIN_FITTING * len(texts) and all(map(_NAME.fullmatch, first)):
        return True
    are_short = all(len(name) <= _MAX_NAME and len(name.split()) <= _MAX_NAME_WORDS for name in first)
    return bool(repeating) and are_short and not any(name in values for name, values in repeating)
