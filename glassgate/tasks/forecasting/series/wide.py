"""Tables with a series per row: a column per year, date, month or step, as of the World Bank or the M4 competition."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from glassgate.tasks.data.detect import is_number
from glassgate.tasks.data.kinds import MISSING_NUMBERS
from glassgate.tasks.forecasting.series.tsf import SERIES, TIME, VALUE

_MIN_TIMES, _MIN_NUMBERED = 4, 8  # columns
_MIN_DISTINCT = 0.95  # the fraction of the names of series that are distinct
_YEAR = re.compile(r"[XY]?((?:1[5-9]|20|21)\d\d)(?: \[YR\1\])?")
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}")
_NUMBERED = re.compile(r"(.*?)(\d+)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


@dataclass(frozen=True)
class Wide:
    """The columns of a table with a series per row.

    Attributes:
        names: the columns before those of the values, which name the series or, for months, the year
        times: the times of the columns of values; empty for steps
        first: the index of the first column of values
        has_months: whether each row is a year, and its columns are the months
    """

    names: tuple[str, ...]
    times: tuple[str, ...]
    first: int
    count: int
    has_months: bool = False


def find_wide(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Wide | None:
    """Return the columns of a table with a series per row; None for other tables.

    Args:
        header: the names of the columns
        rows: the first rows below the header
    """
    names = list(header)
    while names and not names[-1].strip():
        names.pop()
    months = [name.strip().lower()[:3] for name in names]
    if months[1:13] == list(_MONTHS) and rows and all(_YEAR.fullmatch(row[0].strip()) for row in rows if row):
        return Wide((names[0],), (), 1, 12, has_months=True)
    years = _run_at_end(names, _YEAR.fullmatch)
    if years >= _MIN_TIMES:
        times = [match[1] for name in names[-years:] if (match := _YEAR.fullmatch(name))]
        if all(int(after) > int(before) for before, after in pairwise(times)):
            return Wide(tuple(names[:-years]), tuple(times), len(names) - years, years)
    dates = _run_at_end(names, _DATE.fullmatch)
    if dates >= _MIN_TIMES:
        return Wide(tuple(names[:-dates]), tuple(names[-dates:]), len(names) - dates, dates)
    return _numbered(names, rows)


def _numbered(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Wide | None:
    """The columns of a table whose header counts the steps, and whose first column contains distinct names."""
    matches = [_NUMBERED.fullmatch(name) for name in names]
    count = _run_at_end(matches, bool)
    numbers = [(match[1], int(match[2])) for match in matches[len(names) - count :] if match]
    while numbers and any(prefix != numbers[-1][0] for prefix, _ in numbers):
        numbers = numbers[1:]
    is_counted = all(after[1] == before[1] + 1 for before, after in pairwise(numbers))
    series = [row[0].strip() for row in rows if row]
    if is_counted and len(numbers) == len(names):  # the first column is counted, too, and contains the names
        numbers = numbers[1:]
    if not is_counted or len(numbers) < _MIN_NUMBERED or len(numbers) == len(names):
        return None
    if any(is_number(name) or _DATE.match(name) for name in series) or len({*series}) < _MIN_DISTINCT * len(series):
        return None
    first = len(names) - len(numbers)
    return Wide(tuple(names[:first]), (), first, len(numbers))


def _run_at_end(items: Sequence[Any], fits: Callable[[Any], object]) -> int:
    """The number of items at the end that fit."""
    return next((count for count, item in enumerate(reversed(items)) if not fits(item)), len(items))


def long_table(wide: Wide, rows: Iterable[tuple[int, Sequence[str]]]) -> pd.DataFrame:
    """Return a row for each step of each series, with its name, its time or its number, and its value.

    Missing values before and after a series are left out, and so are rows without a value.

    Args:
        rows: the numbers and the cells of the rows below the header
    """
    filled = [(number, [cell.strip() for cell in row]) for number, row in rows if row]
    if wide.has_months:
        cells = [(f"{row[0]}-{k + 1:02d}", row[k + 1]) for _, row in filled for k in range(wide.count)]
        return pd.DataFrame(_without_missing_ends(cells), columns=[TIME, VALUE])
    ids = [row[: wide.first] for _, row in filled]
    distinct = next((k for k in range(wide.first) if len({row[k] for row in ids}) == len(ids)), None)
    parts = []
    for number, row in filled:
        times = wide.times or range(1, wide.count + 1)
        steps = _without_missing_ends(list(zip(times, row[wide.first : wide.first + wide.count], strict=False)))
        joined = "/".join(filter(None, row[: wide.first])) or f"row {number}"
        name = row[distinct] if distinct is not None else joined
        parts.append(pd.DataFrame(steps, columns=[TIME, VALUE]).assign(**{SERIES: name}))
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[SERIES, TIME, VALUE])
    if not wide.times or all(map(str.isdecimal, wide.times)):
        frame[TIME] = frame[TIME].astype(int)
    return frame


def _without_missing_ends(steps: Sequence[tuple[Any, str]]) -> Sequence[tuple[Any, str]]:
    present = [k for k, (_, value) in enumerate(steps) if value not in MISSING_NUMBERS]
    return steps[present[0] : present[-1] + 1] if present else []
