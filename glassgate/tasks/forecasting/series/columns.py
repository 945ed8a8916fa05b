"""Detects the roles of the columns of a table of time series, and parses their numbers."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glassgate.tasks.data.kinds import (
    GROUP_MARK,
    LARGEST,
    MARK,
    MISSING_NUMBERS,
    Column,
    first_in_another_unit,
    is_number,
    parse_mark,
)
from glassgate.tasks.data.reading import NO_READING, Reading
from glassgate.tasks.data.roles import Found, Role, assign
from glassgate.tasks.errors import OptionError
from glassgate.tasks.forecasting.series.layouts import SERIES as SERIES_NAME
from glassgate.tasks.forecasting.series.table import TIME_NAMES, Table
from glassgate.tasks.forecasting.series.times import (
    CLOCK,
    Stamps,
    are_second_times,
    are_times,
    count_parts,
    counts_steps,
    find_time_columns,
    is_date,
)

MISSING = ("error", "last")
"""How gaps in a series are handled; see `Schema.missing`."""
_ROW_NUMBER_NAMES = ("", "no", "nr", "id", "index", "row", "rownames", "unnamed: 0", "instant", "1")
_MIN_COLUMNS_WITH_PARTS = 3  # a year, a month and a value
_STEP_NAMES = ("", "t", "time", "step", "steps", "sec", "second", "seconds", "s", "ms", "frame")
# Numbers such as 1.234, whose mark can separate decimals or thousands.
_AMBIGUOUS_NUMBER = r"[+-]?[1-9]\d{0,2}[.,]\d{3}"
# For each decimal mark, the numbers that require it, such as 3,5 or 1.234,5 or 1.234.567 for the comma.
_UNAMBIGUOUS_NUMBERS = {
    ",": r"[+-]?((\d+|\d{1,3}(\.\d{3})+),\d+(e[+-]?\d+)?|\d{1,3}(\.\d{3}){2,})",
    ".": r"[+-]?((\d*|\d{1,3}(,\d{2,3})*,\d{3})\.\d+(e[+-]?\d+)?|\d{1,3}(,\d{2,3})+,\d{3})",
}


@dataclass(frozen=True)
class Schema:
    """The role of each column of a table, and the forms of its values; the options of the same names describe them.

    Empty values are detected. Each column of `target` is a series, or several if `series` names the series of each row.
    """

    target: tuple[str, ...] = ()
    time: str | None = None
    series: str | None = None
    past: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    time_format: str = ""
    missing: str = "error"
    decimal: str = ""

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers."""
        return (*self.target, *self.past, *self.known)


def resolve_schema(table: Table, schema: Schema, reading: Reading = NO_READING) -> Schema:
    """Detect the columns that a schema does not name, and check that the named columns exist.

    A table that has the columns of the training file follows its reading.
    """
    names = table.names
    if table.has_header or reading.width == len(names):
        time, series = (name if _has(table, name) else None for name in map(reading.get, ("time", "series")))
        schema = replace(schema, time=schema.time or time, series=schema.series or series)
    time = schema.time
    if time is not None and time not in names and _has(table, time):
        time = table.join(tuple(name.strip() for name in time.split(",")))
    elif time is None and (time_columns := find_time_columns(names) or _parts_without_names(table)):
        time = table.join(time_columns)
    schema = replace(schema, time=time)
    for option in ("target", "past", "known", "static", "time", "series"):
        value = getattr(schema, option)
        for name in (value,) if isinstance(value, str) else value or ():
            if name not in names and name not in table.joined:
                available = ", ".join(map(repr, names[:12]))
                raise table.fault(None, f"no column {name!r}; there are {available}; name one of them with --{option}")
    covariates = {*schema.past, *schema.known, *schema.static}
    others = {name for name in (*covariates, *schema.target) if name != time and name.lower() not in TIME_NAMES}
    columns = [column for column in table.columns if column.name not in others]
    found = assign(table.source, columns, {SERIES: schema.series, TIME: time})
    series, time = (columns[found[role]].name if role in found else None for role in (SERIES, TIME))
    counters: set[str] = set()  # columns that count steps, and further columns of times
    if schema.time is None and time is not None:
        time = _with_clock(table, time, {series, *covariates, *schema.target})
        if counts_steps(table.beginning(time)):
            counters, time = {time}, None
    other_columns = {time, series, *covariates, *table.joined.get(time or "", ()), *counters}
    target = schema.target or tuple(name for name in names if name not in other_columns)
    if not schema.target and len(target) > 1:
        target = tuple(name for name in target if not _numbers_rows(table, name))
        counters |= {name for name in target if are_second_times(table.beginning(name))}
        counters |= {name for name in target if name == names[0] and counts_steps(table.beginning(name))}
        target = tuple(name for name in target if name not in counters)
    if counters and table.path is not None:
        table.note += f", without {', '.join(map(repr, sorted(counters)))}, which counts steps or times"
    if series is not None and not schema.target and "y" in target:
        target = ("y",)
    if not target:
        raise table.fault(None, f"expected a column of numbers to forecast, got {', '.join(map(repr, names))}")
    if repeated := other_columns & {*target}:
        raise OptionError(
            f"target: {repeated.pop()!r} holds the time stamps, the names of series or a covariate; name another column"
        )
    return replace(schema, time=time, series=series, target=target)


def reading_of(path: str | Path, schema: Schema) -> Reading:
    """Return the reading of a training file: its columns of time stamps and series, and its decimal mark."""
    table = Table(path, schema.decimal)
    schema = resolve_schema(table, schema)
    mark = _find_decimal_mark([table.first_part], schema.numbers)[0] if not table.is_typed else ""
    stamps = Stamps(table.fault, schema.time or "", schema.time_format)
    if schema.time is not None and len(head := table.beginning(schema.time)):
        stamps.add(head)
    return Reading.of(
        0 if table.has_header else len(table.names),
        time=",".join(table.joined.get(schema.time or "", (schema.time or "",))),
        series=schema.series,
        time_format=stamps.regular_format,
        decimal=mark,
    )


def _has(table: Table, names: str | None) -> bool:
    """Whether a table has a column, or several with commas between their names."""
    return names is not None and (names in table.names or all(name.strip() in table.names for name in names.split(",")))


def _with_clock(table: Table, time: str, columns_with_role: Collection[str | None]) -> str:
    """The column of time stamps, joined with the next column if that contains times of day."""
    following = table.names[table.names.index(time) + 1 :][:1]
    if not following or following[0] in columns_with_role or table.beginning(time).str.contains(":").any():
        return time
    clocks = table.beginning(following[0])
    return table.join((time, following[0])) if len(clocks) and clocks.str.fullmatch(CLOCK).all() else time


def _numbers_rows(table: Table, name: str) -> bool:
    """Whether a column has a name such as "No" or "t" and counts the rows."""
    usual = re.sub(r" *[\[(].*[\])]$", "", name.strip().lower())  # without a unit
    if usual in _STEP_NAMES and counts_steps(table.beginning(name)):
        return True
    if usual not in _ROW_NUMBER_NAMES:
        return False
    numbers = pd.to_numeric(table.beginning(name), errors="coerce")
    return len(numbers) > 1 and bool((numbers.diff().iloc[1:] == 1).all())


def _parts_without_names(table: Table) -> tuple[str, ...]:
    """The first columns of a table without a header, if they contain years, months, and possibly days and hours."""
    if table.has_header or len(table.names) < _MIN_COLUMNS_WITH_PARTS:
        return ()
    return tuple(table.names[: count_parts([table.beginning(name) for name in table.names[:4]])])


def _times(columns: Sequence[Column], _: Found) -> list[Column]:
    """The first column that begins with a date; the first one also with years, compact dates, or seconds since 1970."""
    for number, column in enumerate(columns):
        if not column.values:
            continue
        if not number and column.name.lower() == "year" and column.distinct == len(column.values):
            return [column]
        is_numeric = is_number(column.values[0])
        if is_numeric and not number and are_times(pd.Series(column.values)):
            return [column]
        if not is_numeric and is_date(column.values[0]):
            return [column]
    return []


TIME = Role("time stamps", "--time", TIME_NAMES, _times)
SERIES = Role("names of series", "--series", (SERIES_NAME,), lambda columns, _: [])


class Numbers:
    """Parses columns of numbers, with one decimal mark for all columns: the given one, or one that a number requires.

    If the numbers can have both, it is the `preferred` one. If they are whole, it is a point.
    """

    def __init__(self, table: Table, names: Sequence[str], decimal: str = "", preferred: str | None = None):
        self.table = table
        self.decimal = decimal or ("." if table.is_typed else "")
        if self.decimal:
            return
        self.decimal, ambiguous = _find_decimal_mark(table.parts(names), names)
        self.decimal = self.decimal or (preferred or "" if ambiguous else ".")
        if ambiguous and not self.decimal:
            name, text, row = ambiguous
            whole_number = text.replace(".", "").replace(",", "")
            mark, other_mark = (",", ".") if "," in text else (".", ",")
            raise table.fault(
                row,
                f"column {name!r}: {text} can be {whole_number} or {text.replace(mark, '.')}, and the other numbers do "
                f"not show which; choose --decimal {other_mark} for the first, --decimal {mark} for the second",
            )

    def read(self, values: pd.Series) -> np.ndarray:
        """Return the numbers of a part of a column, `(R,)`, with NaN for missing values."""
        if pd.api.types.is_numeric_dtype(values):
            numbers = values.to_numpy(np.float64, na_value=np.nan)
        else:
            numbers = self._parse(values)
        is_too_large = np.abs(numbers) > LARGEST
        if is_too_large.any():
            index = int(is_too_large.argmax())
            got = "infinity" if np.isinf(numbers[index]) else f"{numbers[index]:g}"
            raise self.table.fault(int(values.index[index]), f"column {values.name!r}: expected a number, got {got}")
        return numbers

    def _parse(self, values: pd.Series) -> np.ndarray:
        texts = values.astype("string").str.strip()
        texts = texts.mask(texts.isin(MISSING_NUMBERS))
        bare, factors = _without_marks(texts)
        other = first_in_another_unit(texts.fillna("")) if bare is not texts else None
        if other is not None:
            raise self.table.fault(
                int(values.index[other]),
                f"column {values.name!r}: {texts.iloc[other]!r} is in another unit than the numbers above; convert the "
                "column to one unit",
            )
        if not self.table.is_typed:
            mark = "[.]" if self.decimal == "," else ","
            thousands = rf"(?<=\d){mark}(?=(\d{{2}}{mark})*\d{{3}}(?!\d))"  # also lakhs: 12,34,567
            bare = _without_spaces(bare).str.replace(thousands, "", regex=True)
            bare = bare.str.replace(self.decimal, ".", regex=False)
        numbers = pd.to_numeric(bare, errors="coerce").to_numpy(np.float64, na_value=np.nan) * factors
        is_invalid = np.isnan(numbers) & texts.notna().to_numpy(bool)
        if is_invalid.any():
            index = int(is_invalid.argmax())
            raise self.table.fault(
                int(values.index[index]),
                f"column {values.name!r}: expected a number, got {texts.iloc[index]!r}; correct it, or name the "
                "columns of numbers to forecast with --target, and a column of the series' names with --series",
            )
        return numbers


def _find_decimal_mark(parts: Iterable[pd.DataFrame], names: Sequence[str]) -> tuple[str, tuple[str, str, int] | None]:
    """The decimal mark that some number requires, or an empty string; and the first number that can have both.

    The number is returned with the name of its column and the number of its row.
    """
    first_ambiguous: tuple[str, str, int] | None = None
    for part in parts:
        for name in names:
            texts = _without_spaces(_without_marks(part[name])[0])
            is_ambiguous = texts.str.fullmatch(_AMBIGUOUS_NUMBER).to_numpy(bool)
            for mark, pattern in _UNAMBIGUOUS_NUMBERS.items():
                if texts[~is_ambiguous].str.fullmatch(pattern, case=False).any():
                    return mark, None
            if first_ambiguous is None and is_ambiguous.any():
                text = texts[is_ambiguous].iloc[:1]
                first_ambiguous = name, text.iloc[0], int(text.index[0])
    return "", first_ambiguous


def _without_marks(texts: pd.Series) -> tuple[pd.Series, Any]:
    """Return texts of numbers without marks of units and letters such as K, and the factors of the letters."""
    if not texts.str.contains(MARK).any():
        return texts, 1.0
    marked = [parse_mark("" if pd.isna(text) else text.strip()) for text in texts]
    bare = pd.Series([each.number for each in marked], texts.index, "string").mask(texts.isna())
    return bare, np.array([each.factor for each in marked])


def _without_spaces(texts: pd.Series) -> pd.Series:
    """Remove the spaces at the ends of numbers, and the blanks or apostrophes between their groups of thousands."""
    return texts.str.strip().str.replace(GROUP_MARK, "", regex=True)
