"""Tables of series in layouts that become a long table: JSON, .tsf files (Godahewa et al. 2021), and a series per row.

A long table has a row for each step of each series, with its name, its time or its number, and its value.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from glassgate.tasks.data import records
from glassgate.tasks.data.kinds import MISSING_NUMBERS, is_number
from glassgate.tasks.data.lines import read_declared
from glassgate.tasks.errors import DataError

SERIES, TIME, VALUE = "unique_id", "ds", "y"
"""The names of the columns of a long table."""

_MIN_STEPS = 2
_TARGETS, _STARTS, _NAMES = ("target", "values", "y"), ("start", "timestamp"), ("item_id", "id", "name", SERIES)
_FREQUENCY = re.compile(r"(\d*)[\s_]*([A-Za-z_]+)(-\w+)?")
_UNITS = {
    **{"seconds": ("s", "seconds"), "minutes": ("t", "min", "minutes", "minutely"), "hours": ("h", "hourly")},
    **{"days": ("d", "daily"), "weeks": ("w", "weekly"), "months": ("m", "ms", "me", "monthly")},
    **{"years": ("y", "a", "ys", "ye", "yearly")},
}
"""The frequencies of pandas and of .tsf files, in lower case, by the argument of `pandas.DateOffset`."""
_MIN_TIMES, _MIN_NUMBERED = 4, 8  # columns of values
_MIN_DISTINCT = 0.95  # the fraction of the names of series that are distinct
_YEAR = re.compile(r"[XY]?((?:1[5-9]|20|21)\d\d)(?: \[YR\1\])?")
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}")
_NUMBERED = re.compile(r"(.*?)(\d+)")
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]


def _steps(
    name: str, values: Sequence[Any], start: str | None, frequency: str, format: str | None = None
) -> pd.DataFrame:
    """The steps of a series, with their times if its start is given and its frequency is known, or else numbered."""
    offset = None if start is None else _offset(frequency)
    times: Any = range(1, len(values) + 1)
    if offset is not None:
        times = pd.date_range(pd.to_datetime(start, format=format), periods=len(values), freq=offset)
    return pd.DataFrame({SERIES: name, TIME: times, VALUE: values})


def _offset(frequency: str) -> pd.DateOffset | None:
    """The offset for a frequency such as 15min, H, MS, hourly or 10_minutes; None for others.

    Example:
        >>> _offset("2H"), _offset("QS"), _offset("half_hourly"), _offset("")
        (<DateOffset: hours=2>, <DateOffset: months=3>, <DateOffset: minutes=30>, None)
    """
    match = _FREQUENCY.fullmatch(frequency)
    if match is None:
        return None
    count, name = int(match[1] or 1), match[2].lower()
    if name == "b":
        return pd.tseries.offsets.BDay(count)
    if name in ("q", "qs", "qe", "quarterly"):
        count, name = 3 * count, "m"
    elif name == "half_hourly":
        count, name = 30, "min"
    unit = next((unit for unit, names in _UNITS.items() if name in names), None)
    return None if unit is None else pd.DateOffset(**{unit: count})


def read_tsf(path: str | Path) -> pd.DataFrame:
    """Return the long table of a .tsf file."""
    declarations, lines = read_declared(path)
    kinds = [text.lower().rpartition(" ")[2] for _, tag, text in declarations if tag == "@attribute"]
    frequency = next((text for _, tag, text in declarations if tag == "@frequency"), "")
    parts = []
    for number, text in lines:
        *cells, values = text.split(":")
        if len(cells) != len(kinds):
            raise DataError(path, number, f"expected {len(kinds)} attributes before the series, got {len(cells)}")
        try:
            numbers = [float("nan" if value.strip() == "?" else value) for value in values.split(",")]
        except ValueError as error:
            raise DataError(path, number, f"expected numbers, got: {error}; correct the line") from None
        by_kind = dict(zip(kinds, cells, strict=True))
        name, start = by_kind.get("string", f"T{number}"), by_kind.get("date")
        parts.append(_steps(name, numbers, start, frequency, "%Y-%m-%d %H-%M-%S"))
    if not parts:
        raise DataError(path, None, "expected a line @data and the series after it, got none; is the file cut short?")
    return pd.concat(parts, ignore_index=True)


def read_json_table(path: str | Path, kind: str) -> pd.DataFrame:
    """Return the table in a file of JSON or JSON lines; it may be nested in objects, if they contain only one."""
    content = records.load_json(path) if kind == "json" else [row for _, row in records.read_json_lines(path)]
    if kind == "jsonl" and len(content) == 1:
        content = content[0]
    tables = _tables(content, "")
    if len(tables) != 1:
        got = " and ".join(repr(name) for name, _ in tables) or "none"
        raise DataError(
            path,
            None,
            f"expected a table of numbers in JSON, such as a list of objects, got {got}; write one table to a file",
        )
    return tables[0][1]


def _tables(content: Any, name: str) -> list[tuple[str, pd.DataFrame]]:
    """The tables in parsed JSON, with the keys that lead to them."""
    table = _table_of_list(content) if isinstance(content, list) else None
    if isinstance(content, dict):
        table = _table_of_object(content)
        if table is None:
            return [found for key, value in content.items() for found in _tables(value, f"{name}.{key}".strip("."))]
    return [] if table is None else [(name, table)]


def _table_of_list(rows: Sequence[Any]) -> pd.DataFrame | None:
    has_steps = len(rows) >= _MIN_STEPS
    if has_steps and all(map(_is_number, rows)):
        return pd.DataFrame({VALUE: rows})
    if rows and all(isinstance(row, dict) for row in rows):
        target = next((key for key in _TARGETS if isinstance(rows[0].get(key), list)), None)
        if target is not None:
            return pd.concat([_series_of_object(k, row, target) for k, row in enumerate(rows, 1)], ignore_index=True)
        frame = pd.json_normalize(list(rows))
        return frame if has_steps and any(map(_is_number, rows[0].values())) else None
    if not has_steps or not all(isinstance(row, list) and 1 < len(row) == len(rows[0]) for row in rows):
        return None
    if not (_is_number(rows[0][-1]) and all(map(_is_flat, rows))):
        return None
    return pd.DataFrame(rows, columns=[str(k + 1) for k in range(len(rows[0]))])


def _table_of_object(content: Mapping[str, Any]) -> pd.DataFrame | None:
    """The table of an object with a list or an object per column, with a list per series, or with a value per time."""
    values = list(content.values())
    if values and all(isinstance(each, list) and len(each) >= _MIN_STEPS for each in values):
        numeric = [all(map(_is_number, each)) for each in values]
        is_table = any(numeric) and not any(isinstance(cell, list | dict) for cell in values[0])
        if is_table and len({*map(len, values)}) == 1:
            return pd.DataFrame(dict(content))
        if all(numeric):
            parts = [pd.DataFrame({SERIES: key, VALUE: value}) for key, value in content.items()]
            return pd.concat(parts, ignore_index=True)
    if len(values) >= _MIN_STEPS and all(map(_is_number, values)) and not all(key.isidentifier() for key in content):
        return pd.DataFrame({"time": list(content), VALUE: values})
    if values and all(isinstance(each, dict) and _is_flat(each.values()) for each in values):
        if len(values) > max(map(len, values)):
            return pd.DataFrame.from_dict(dict(content), orient="index").rename_axis("time").reset_index()
        if min(map(len, values)) >= _MIN_STEPS and any(map(_is_number, values[0].values())):
            frame = pd.DataFrame(dict(content))
            counts_rows = [*frame.index] == [str(k) for k in range(len(frame))]
            return frame.reset_index(drop=True) if counts_rows else frame.rename_axis("time").reset_index()
    return None


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_flat(cells: Iterable[Any]) -> bool:
    return all(_is_number(cell) or isinstance(cell, str) for cell in cells)


def _series_of_object(number: int, row: Mapping[str, Any], target: str) -> pd.DataFrame:
    """The steps of a series in one object, with its name, its start and its frequency, as in the files of GluonTS."""
    name = next((str(row[key]) for key in _NAMES if key in row), f"T{number}")
    start = next((row[key] for key in _STARTS if isinstance(row.get(key), str)), None)
    steps = _steps(name, row[target], start, str(row.get("freq", "")))
    stamps = next((row[key] for key in _STARTS if key in row), None)
    return steps.assign(**{TIME: stamps}) if isinstance(stamps, list) else steps


class Wide(NamedTuple):
    """The columns of a table with a series per row, as of the World Bank or the M4 competition.

    Attributes:
        times: the times of the columns of values; empty for steps
        first, stop: the indices of the columns of values; those before name the series or, for months, the year
        has_months: whether each row is a year, and its columns are the months
    """

    times: Sequence[str]
    first: int
    stop: int
    has_months: bool = False


def find_wide(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Wide | None:
    """Return the columns of a table with a series per row, given its first rows; None for other tables."""
    names = list(header)
    while names and not names[-1].strip():
        names.pop()
    count = len(names)
    months = [name.strip().lower()[:3] for name in names[1:13]]
    if months == _MONTHS and rows and all(_YEAR.fullmatch(row[0].strip()) for row in rows if row):
        return Wide((), 1, 13, has_months=True)
    first = count - _run_at_end(names, _YEAR.fullmatch)
    times = [_YEAR.sub(r"\1", name) for name in names[first:]]
    if len(times) >= _MIN_TIMES and all(int(after) > int(before) for before, after in pairwise(times)):
        return Wide(times, first, count)
    first = count - _run_at_end(names, _DATE.fullmatch)
    if count - first >= _MIN_TIMES:
        return Wide(names[first:], first, count)
    return _find_numbered(names, rows)


def _find_numbered(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Wide | None:
    """The columns of a table whose header counts the steps, and whose first column contains distinct names."""
    matches = [_NUMBERED.fullmatch(name) for name in names]
    numbers = [(match[1], int(match[2])) for match in matches[len(names) - _run_at_end(matches, bool) :] if match]
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
    return Wide((), len(names) - len(numbers), len(names))


def _run_at_end(items: Sequence[Any], fits: Callable[[Any], object]) -> int:
    """The number of items at the end that fit."""
    return next((count for count, item in enumerate(reversed(items)) if not fits(item)), len(items))


def long_table(wide: Wide, rows: Iterable[tuple[int, Sequence[str]]]) -> pd.DataFrame:
    """Return the long table of numbered rows, without missing values before and after a series."""
    filled = {number: [cell.strip() for cell in row] for number, row in rows if row}
    if wide.has_months:
        cells = [(f"{row[0]}-{k:02d}", row[k]) for row in filled.values() for k in range(wide.first, wide.stop)]
        return pd.DataFrame(_without_missing_ends(cells), columns=[TIME, VALUE])
    ids = [row[: wide.first] for row in filled.values()]
    distinct = next((k for k in range(wide.first) if len({row[k] for row in ids}) == len(ids)), None)
    parts = []
    for number, row in filled.items():
        times = wide.times or range(1, wide.stop - wide.first + 1)
        steps = _without_missing_ends(list(zip(times, row[wide.first : wide.stop], strict=False)))
        joined = "/".join(filter(None, row[: wide.first])) or f"row {number}"
        name = joined if distinct is None else row[distinct]
        parts.append(pd.DataFrame(steps, columns=[TIME, VALUE]).assign(**{SERIES: name}))
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[SERIES, TIME, VALUE])
    if not wide.times or all(map(str.isdecimal, wide.times)):
        frame[TIME] = frame[TIME].astype(int)
    return frame


def _without_missing_ends(steps: Sequence[tuple[Any, str]]) -> Sequence[tuple[Any, str]]:
    present = [k for k, (_, value) in enumerate(steps) if value not in MISSING_NUMBERS]
    return steps[present[0] : present[-1] + 1] if present else []
