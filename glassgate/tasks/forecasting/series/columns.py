"""Detects the roles of the columns of a table of time series, and parses their numbers."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from glassgate.tasks.data.detect import is_number
from glassgate.tasks.data.marked_numbers import LARGEST, MARK, first_in_another_unit, without_mark
from glassgate.tasks.data.sniff import MISSING_NUMBERS
from glassgate.tasks.errors import OptionError
from glassgate.tasks.forecasting.series.reader import Table
from glassgate.tasks.forecasting.series.schema import TIME_NAMES, Schema
from glassgate.tasks.forecasting.series.stamps import is_date
from glassgate.tasks.forecasting.series.time_columns import (
    CLOCK,
    are_decimal_years,
    are_times,
    counts_steps,
    find_parts,
    find_time_columns,
)

_ROW_NUMBER_NAMES = ("", "no", "nr", "id", "index", "row", "rownames", "unnamed: 0", "instant", "1")
_EXAMINED_ROWS = 1000
_MIN_COLUMNS_WITH_PARTS = 3  # a year, a month and a value
_STEP_NAMES = ("", "t", "time", "step", "steps", "sec", "second", "seconds", "s", "ms", "frame")
# Numbers such as 1.234, whose mark can separate decimals or thousands.
_AMBIGUOUS_NUMBER = r"[+-]?[1-9]\d{0,2}[.,]\d{3}"
# For each decimal mark, the numbers that require it, such as 3,5 or 1.234,5 or 1.234.567 for the comma.
_UNAMBIGUOUS_NUMBERS = {
    ",": r"[+-]?((\d+|\d{1,3}(\.\d{3})+),\d+(e[+-]?\d+)?|\d{1,3}(\.\d{3}){2,})",
    ".": r"[+-]?((\d*|\d{1,3}(,\d{3})+)\.\d+(e[+-]?\d+)?|\d{1,3}(,\d{3}){2,})",
}


def resolve_schema(table: Table, schema: Schema) -> Schema:
    """Detect the columns that a schema does not name, and check that the named columns exist.

    Raises:
        DataError: the first row is not a header, a named column does not exist, or no column is left to forecast
        OptionError: a target column has a second role
    """
    names = table.names
    _check_header(table)
    time = schema.time
    if time is not None and time not in names and all(name.strip() in names for name in time.split(",")):
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
    time, series = schema.time, schema.series
    if series is None and "unique_id" in names:
        series = "unique_id"
    if time is None:
        time = next((name for name in names if name.lower() in TIME_NAMES), None)
    skipped: set[str] = set()  # columns of times that only count the steps
    columns_with_role = {series, *schema.past, *schema.known, *schema.static, *schema.target}
    if time is None:
        candidates = [name for name in names if name not in columns_with_role]
        time = next((name for name in candidates if _has_times(table, name, name == names[0])), None)
    if schema.time is None and time is not None:
        time = _with_clock(table, time, columns_with_role)
        if counts_steps(_beginning(table, time)):
            skipped, time = {time}, None
    other_columns = {time, series, *schema.past, *schema.known, *schema.static}
    other_columns |= {*table.joined.get(time or "", ()), *skipped}
    target = schema.target or tuple(name for name in names if name not in other_columns)
    if not schema.target and len(target) > 1:
        target = tuple(name for name in target if not _numbers_rows(table, name))
        skipped |= {name for name in target if _is_second_time(table, name)}
        target = tuple(name for name in target if name not in skipped)
    if skipped and table.path is not None:
        table.note += f", without {', '.join(map(repr, sorted(skipped)))}, which counts steps or times"
    if series is not None and not schema.target and "y" in target:
        target = ("y",)
    if not target:
        raise table.fault(None, f"expected a column of numbers to forecast, got {', '.join(map(repr, names))}")
    if repeated := other_columns & {*target}:
        raise OptionError(
            f"target: {repeated.pop()!r} holds the time stamps, the names of series or a covariate; name another column"
        )
    return replace(schema, time=time, series=series, target=target)


def _beginning(table: Table, name: str) -> pd.Series:
    """The first part of a column, as text without blanks at the ends."""
    part = next((part[name] for _, part in table.parts([name])), pd.Series(dtype=str))
    return part if pd.api.types.is_datetime64_any_dtype(part) else part.astype(str).str.strip()


def _numbers_rows(table: Table, name: str) -> bool:
    """Whether a column has a name such as "No" or "t" and counts the rows."""
    if name.strip().lower() in _STEP_NAMES and counts_steps(_beginning(table, name)):
        return True
    if name.strip().lower() not in _ROW_NUMBER_NAMES:
        return False
    numbers = pd.to_numeric(_beginning(table, name), errors="coerce")
    return len(numbers) > 1 and bool((numbers.diff().iloc[1:] == 1).all())


def _is_second_time(table: Table, name: str) -> bool:
    """Whether a column contains dates, times of day or decimal years, in addition to the column of time stamps."""
    values = _beginning(table, name)
    if pd.api.types.is_datetime64_any_dtype(values):
        return True
    head = values.iloc[:_EXAMINED_ROWS]
    if not len(head):
        return False
    return bool(head.str.fullmatch(CLOCK.replace("[:.]", ":")).all()) or (
        (not is_number(str(head.iloc[0])) and is_date(str(head.iloc[0]))) or are_decimal_years(head.astype("string"))
    )


def _parts_without_names(table: Table) -> tuple[str, ...]:
    """The first columns of a table without a header, if they contain years, months, and possibly days and hours."""
    if table.has_header or len(table.names) < _MIN_COLUMNS_WITH_PARTS:
        return ()
    return tuple(table.names[: find_parts([_beginning(table, name).iloc[:_EXAMINED_ROWS] for name in table.names[:4]])])


def _has_times(table: Table, name: str, is_first: bool) -> bool:
    """Whether a column contains time stamps.

    It begins with a date, or it is the first column and contains years, compact dates, or seconds since 1970.
    """
    beginning = _beginning(table, name)
    if pd.api.types.is_datetime64_any_dtype(beginning):
        return True
    if not len(beginning):
        return False
    if is_first and name.lower() == "year" and beginning.is_unique:
        return True
    if is_number(beginning.iloc[0]):
        return is_first and are_times(beginning)
    return is_date(beginning.iloc[0])


def _with_clock(table: Table, time: str, columns_with_role: Collection[str | None]) -> str:
    """The column of dates, joined with the next one if that contains times of day."""
    names = table.names
    if time not in names or names.index(time) + 1 == len(names):
        return time
    following = names[names.index(time) + 1]
    dates = _beginning(table, time)
    if following in columns_with_role or pd.api.types.is_datetime64_any_dtype(dates) or dates.str.contains(":").any():
        return time
    clocks = _beginning(table, following)
    return table.join((time, following)) if len(clocks) and clocks.str.fullmatch(CLOCK).all() else time


def _check_header(table: Table) -> None:
    """Check that the first row is a header. A row of numbers is a header only if it numbers the columns from 0."""
    if table.kind != "xlsx":
        return
    first = table.names[0].strip()
    is_row_of_numbers = all(map(is_number, table.names)) and list(map(str, range(len(table.names)))) != table.names
    if is_row_of_numbers or (not is_number(first) and is_date(first)):
        raise table.fault(
            None,
            f"expected a header in the first row, got {', '.join(map(repr, table.names[:4]))}; add a row with the "
            "names of the columns",
        )


class Numbers:
    """Parses columns of numbers, with one decimal mark for all columns.

    Args:
        table: the table
        names: the names of the columns of numbers
        decimal: the decimal mark; detected if empty

    Raises:
        DataError: the decimal mark is ambiguous
    """

    def __init__(self, table: Table, names: Sequence[str], decimal: str = ""):
        self.table = table
        self.decimal = decimal or (self._detect_decimal(names) if table.is_text else ".")

    def _detect_decimal(self, names: Sequence[str]) -> str:
        """The decimal mark that some number requires; a point if all numbers are whole."""
        first_ambiguous: tuple[str, str, int] | None = None
        for rows, part in self.table.parts(names):
            for name in names:
                texts = _without_spaces(_without_marks(part[name])[0])
                is_ambiguous = texts.str.fullmatch(_AMBIGUOUS_NUMBER).to_numpy(bool)
                for mark, pattern in _UNAMBIGUOUS_NUMBERS.items():
                    if texts[~is_ambiguous].str.fullmatch(pattern, case=False).any():
                        return mark
                if first_ambiguous is None and is_ambiguous.any():
                    index = int(is_ambiguous.argmax())
                    first_ambiguous = name, texts.iloc[index], int(rows[index])
        if first_ambiguous is None:
            return "."
        name, text, row = first_ambiguous
        whole_number = text.replace(".", "").replace(",", "")
        mark, other_mark = ("," if "," in text else "."), ("." if "," in text else ",")
        raise self.table.fault(
            row,
            f"column {name!r}: {text} can be {whole_number} or {text.replace(mark, '.')}, and the other numbers do not "
            f"show which; choose --decimal {other_mark} for the first, --decimal {mark} for the second",
        )

    def read(self, name: str, rows: np.ndarray, values: pd.Series) -> np.ndarray:
        """Return the numbers of a column, `(R,)`, with NaN for missing values.

        Args:
            name: the name of the column, for messages
            rows: the numbers of the rows in the table, `(R,)`, for messages
            values: the numbers, or texts of numbers

        Raises:
            DataError: a value is not a number, or is infinite
        """
        is_numeric = pd.api.types.is_numeric_dtype(values)
        numbers = values.to_numpy(np.float64, na_value=np.nan) if is_numeric else self._parse(name, rows, values)
        is_too_large = np.abs(numbers) > LARGEST
        if is_too_large.any():
            index = int(is_too_large.argmax())
            got = "infinity" if np.isinf(numbers[index]) else f"{numbers[index]:g}"
            raise self.table.fault(int(rows[index]), f"column {name!r}: expected a number, got {got}")
        return numbers

    def _parse(self, name: str, rows: np.ndarray, values: pd.Series) -> np.ndarray:
        texts = values.astype("string").str.strip()
        texts = texts.mask(texts.isin(MISSING_NUMBERS))
        bare, factors = _without_marks(texts)
        other = first_in_another_unit(texts.fillna("")) if bare is not texts else None
        if other is not None:
            raise self.table.fault(
                int(rows[other]),
                f"column {name!r}: {texts.iloc[other]!r} is in another unit than the numbers above; convert the column "
                "to one unit",
            )
        if self.table.is_text:
            thousands_mark = "." if self.decimal == "," else ","
            bare = _without_spaces(bare).str.replace(
                rf"(?<=\d){re.escape(thousands_mark)}(?=\d{{3}}(?!\d))", "", regex=True
            )
            bare = bare.str.replace(self.decimal, ".", regex=False)
        numbers = pd.to_numeric(bare, errors="coerce").to_numpy(np.float64, na_value=np.nan) * factors
        is_invalid = np.isnan(numbers) & texts.notna().to_numpy(bool)
        if is_invalid.any():
            index = int(is_invalid.argmax())
            raise self.table.fault(
                int(rows[index]),
                f"column {name!r}: expected a number, got {texts.iloc[index]!r}; correct it, or name the columns of "
                "numbers to forecast with --target, and a column of the series' names with --series",
            )
        return numbers


def _without_marks(texts: pd.Series) -> tuple[pd.Series, Any]:
    """Return texts of numbers without marks of units and letters such as K, and the factors of the letters."""
    if not texts.str.contains(MARK).any():
        return texts, 1.0
    pairs = [("", 1.0) if pd.isna(text) else without_mark(text.strip()) for text in texts]
    bare = pd.Series([text for text, _ in pairs], texts.index, "string").mask(texts.isna())
    return bare, np.array([factor for _, factor in pairs])


def _without_spaces(texts: pd.Series) -> pd.Series:
    """Remove the spaces at the ends of numbers and between their groups of thousands."""
    return texts.str.strip().str.replace(r"(?<=\d)\s(?=\d{3}(?!\d))", "", regex=True)
