"""Tables of time series in JSON: records, columns, pairs of times and values, and a series per key or per row."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from glassgate.tasks.data import json_rows
from glassgate.tasks.errors import DataError
from glassgate.tasks.forecasting.series.tsf import SERIES, TIME, VALUE

_MIN_STEPS = 2
_TARGETS, _STARTS, _NAMES = ("target", "values", "y"), ("start", "timestamp"), ("item_id", "id", "name", SERIES)
_FREQUENCY = re.compile(r"(\d*)\s*(min|MS|ME|QS|QE|YS|YE|[A-Za-z])(-\w+)?")
_OFFSETS = {
    **{"s": "seconds", "t": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"},
    **{"m": "months", "ms": "months", "me": "months", "y": "years", "a": "years", "ys": "years", "ye": "years"},
}
"""The argument of `pandas.DateOffset` for the frequencies of pandas, in lower case."""


def read_json_table(path: str | Path, kind: str) -> pd.DataFrame:
    """Return the table that a file of JSON or JSON lines contains.

    The table may be nested in objects, if they contain only one.

    Raises:
        DataError: the file does not parse, or contains no table of numbers, or several
    """
    content = json_rows.load_json(path) if kind == "json" else [row for _, row in json_rows.read_json_lines(path)]
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
            inner = [_tables(value, f"{name}.{key}".strip(".")) for key, value in content.items()]
            return [each for tables in inner for each in tables]
    return [] if table is None else [(name, table)]


def _table_of_list(rows: Sequence[Any]) -> pd.DataFrame | None:
    if len(rows) >= _MIN_STEPS and all(map(_is_number, rows)):
        return pd.DataFrame({VALUE: rows})
    if rows and all(isinstance(row, dict) for row in rows):
        target = next((key for key in _TARGETS if isinstance(rows[0].get(key), list)), None)
        if target is not None:
            return pd.concat([_series(k, row, target) for k, row in enumerate(rows, 1)], ignore_index=True)
        frame = pd.json_normalize(list(rows))
        return frame if len(frame) >= _MIN_STEPS and any(map(_is_number, rows[0].values())) else None
    if len(rows) >= _MIN_STEPS and all(isinstance(row, list) and 1 < len(row) == len(rows[0]) for row in rows):
        is_flat = all(_is_number(cell) or isinstance(cell, str) for row in rows for cell in row)
        if is_flat and _is_number(rows[0][-1]):
            return pd.DataFrame(rows, columns=[str(k + 1) for k in range(len(rows[0]))])
    return None


def _table_of_object(content: Mapping[str, Any]) -> pd.DataFrame | None:
    values = list(content.values())
    lists = [value for value in values if isinstance(value, list)]
    if lists and len(lists) == len(values) and all(len(each) >= _MIN_STEPS for each in lists):
        numeric = [all(map(_is_number, each)) for each in lists]
        if len({*map(len, lists)}) == 1 and any(numeric) and not any(isinstance(x, list | dict) for x in lists[0]):
            return pd.DataFrame(dict(content))
        if all(numeric):
            parts = [pd.DataFrame({SERIES: key, VALUE: value}) for key, value in content.items()]
            return pd.concat(parts, ignore_index=True)
    if len(values) >= _MIN_STEPS and all(map(_is_number, values)) and not all(key.isidentifier() for key in content):
        return pd.DataFrame({"time": list(content), VALUE: values})
    objects = [value for value in values if isinstance(value, dict)]
    are_flat = all(_is_number(cell) or isinstance(cell, str) for each in objects for cell in each.values())
    if objects and len(objects) == len(values) and are_flat:
        if len(objects) > max(map(len, objects)):
            return pd.DataFrame.from_dict(dict(content), orient="index").rename_axis("time").reset_index()
        if min(map(len, objects)) >= _MIN_STEPS and any(_is_number(x) for x in objects[0].values()):
            frame = pd.DataFrame(dict(content))
            counts_rows = [*frame.index] == [str(k) for k in range(len(frame))]
            return frame.reset_index(drop=True) if counts_rows else frame.rename_axis("time").reset_index()
    return None


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _series(number: int, row: Mapping[str, Any], target: str) -> pd.DataFrame:
    """The steps of a series in one object, with its name, its start and its frequency, as in the files of GluonTS."""
    values = row[target]
    name = next((str(row[key]) for key in _NAMES if key in row), f"T{number}")
    start = next((row[key] for key in _STARTS if isinstance(row.get(key), str)), None)
    offset = _offset(str(row.get("freq", "")))
    times: object = range(1, len(values) + 1)
    if start is not None and offset is not None:
        times = pd.date_range(pd.to_datetime(start), periods=len(values), freq=offset)
    elif isinstance(stamps := next((row[key] for key in _STARTS if key in row), None), list):
        times = stamps
    return pd.DataFrame({SERIES: name, TIME: times, VALUE: values})


def _offset(frequency: str) -> pd.DateOffset | None:
    """The offset for a frequency of pandas such as 15min, H or MS; None for others.

    Example:
        >>> _offset("2H"), _offset("QS"), _offset("")
        (<DateOffset: hours=2>, <DateOffset: months=3>, None)
    """
    match = _FREQUENCY.fullmatch(frequency)
    if match is None:
        return None
    count, letters = int(match[1] or 1), match[2].lower()
    if letters in ("q", "qs", "qe"):
        return pd.DateOffset(months=3 * count)
    if letters == "b":
        return pd.tseries.offsets.BDay(count)
    return pd.DateOffset(**{_OFFSETS[letters]: count}) if letters in _OFFSETS else None
