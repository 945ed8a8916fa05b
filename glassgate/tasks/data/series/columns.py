"""Detects the roles of the columns of a table of time series, and parses their numbers and time stamps."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from glassgate.tasks.data.series.reader import Table
from glassgate.tasks.data.series.schema import TIME_NAMES, Schema, infer, shown
from glassgate.tasks.errors import DataError, OptionError

_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
_COMPACT_DATE = r"(19|20)\d\d[01]\d[0-3]\d"
_ONE_GROUP = r"[+-]?[1-9]\d{0,2}[.,]\d{3}"
# Numbers that show the decimal mark: by a fraction, or by several groups of thousands.
_DECIMALS = {
    ",": r"[+-]?((\d+|\d{1,3}(\.\d{3})+),\d+(e[+-]?\d+)?|\d{1,3}(\.\d{3}){2,})",
    ".": r"[+-]?((\d*|\d{1,3}(,\d{3})+)\.\d+(e[+-]?\d+)?|\d{1,3}(,\d{3}){2,})",
}


def resolved(table: Table, schema: Schema) -> Schema:
    """Return the schema with detected columns where none is named; check that named columns exist.

    Raises:
        DataError: a named column does not exist, or no column is left to forecast
        OptionError: a column has two roles
    """
    names = table.names
    _check_header(table)
    given = {option: getattr(schema, option) for option in ("target", "past", "known", "static", "time", "series")}
    for option, value in given.items():
        for name in (value,) if isinstance(value, str) else value or ():
            if name not in names:
                known = ", ".join(map(repr, names[:12]))
                raise table.fault(None, f"no column {name!r}; there are {known}; name one of them with --{option}")
    time, series = schema.time, schema.series
    if series is None and "unique_id" in names:
        series = "unique_id"
    if time is None:
        time = next((name for name in names if name.lower() in TIME_NAMES), None)
    others = {series, *schema.past, *schema.known, *schema.static, *schema.target}
    if time is None and names[0] not in others and _holds_times(table, names[0]):
        time = names[0]
    taken = {time, series, *schema.past, *schema.known, *schema.static}
    target = schema.target or tuple(name for name in names if name not in taken)
    if series is not None and not schema.target and "y" in target:
        target = ("y",)
    if not target:
        raise table.fault(None, f"expected a column of numbers to forecast, got {', '.join(map(repr, names))}")
    if both := taken & {*target}:
        raise OptionError(
            f"target: {both.pop()!r} holds the time stamps, the names of series or a covariate; name another column"
        )
    return replace(schema, time=time, series=series, target=target)


def _holds_times(table: Table, name: str) -> bool:
    """Whether a column begins with a date, or contains years."""
    first = next((part[name] for _, part in table.parts([name])), None)
    if first is None or pd.api.types.is_datetime64_any_dtype(first):
        return first is not None
    if name.lower() == "year" and first.is_unique:
        return True
    text = str(first.iloc[0]).strip()
    return bool(re.fullmatch(_COMPACT_DATE, text)) if _is_number(text) else _is_date(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_date(text: str) -> bool:
    return any(len(_parsed(pd.Series([text]), each)) for each in FORMATS)


def _check_header(table: Table) -> None:
    """Check that the first row is a header. A row of numbers is one only if it counts the columns."""
    if not (table.is_text or table.kind == "xlsx"):
        return
    first = table.names[0].strip()
    numbers = all(map(_is_number, table.names)) and list(map(str, range(len(table.names)))) != table.names
    if numbers or (not _is_number(first) and _is_date(first)):
        raise table.fault(
            1 if table.is_text else None,
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
        self.decimal = decimal or (self._detected(names) if table.is_text else ".")

    def _detected(self, names: Sequence[str]) -> str:
        """The decimal mark that some number requires, such as 3,5 or 1.234,5; a point if none does."""
        unclear: tuple[str, str, int] | None = None
        for rows, part in self.table.parts(names):
            for name in names:
                texts = _without_spaces(part[name])
                either = texts.str.fullmatch(_ONE_GROUP).to_numpy(bool)
                for mark, pattern in _DECIMALS.items():
                    if texts[~either].str.fullmatch(pattern, case=False).any():
                        return mark
                if unclear is None and either.any():
                    place = int(either.argmax())
                    unclear = name, texts.iloc[place], int(rows[place])
        if unclear is None:
            return "."
        name, text, row = unclear
        plain = text.replace(".", "").replace(",", "")
        mark, other = ("," if "," in text else "."), ("." if "," in text else ",")
        raise self.table.fault(
            row,
            f"column {name!r}: {text} can be {plain} or {text.replace(mark, '.')}, and the other numbers do not "
            f"show which; choose --decimal {other} for the first, --decimal {mark} for the second",
        )

    def read(self, name: str, rows: np.ndarray, values: pd.Series) -> np.ndarray:
        """Return the numbers of a column, `(R,)`, with NaN for missing values.

        Raises:
            DataError: a value is not a number, or is infinite
        """
        numeric = pd.api.types.is_numeric_dtype(values)
        numbers = values.to_numpy(np.float64, na_value=np.nan) if numeric else self._parse(name, rows, values)
        if np.isinf(numbers).any():
            row = int(rows[np.isinf(numbers).argmax()])
            raise self.table.fault(row, f"column {name!r}: expected a number, got infinity")
        return numbers

    def _parse(self, name: str, rows: np.ndarray, values: pd.Series) -> np.ndarray:
        texts = values.astype("string").str.strip()
        texts = plain = texts.mask(texts.isin(_MISSING))
        if self.table.is_text:
            thousands = "." if self.decimal == "," else ","
            plain = _without_spaces(texts).str.replace(
                rf"(?<=\d){re.escape(thousands)}(?=\d{{3}}(?!\d))", "", regex=True
            )
            plain = plain.str.replace(self.decimal, ".", regex=False)
        numbers = pd.to_numeric(plain, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        wrong = np.isnan(numbers) & texts.notna().to_numpy(bool)
        if wrong.any():
            place = int(wrong.argmax())
            raise self.table.fault(
                int(rows[place]),
                f"column {name!r}: expected a number, got {texts.iloc[place]!r}; correct it, or name the columns of "
                "numbers to forecast with --target, and a column of the series' names with --series",
            )
        return numbers


def _without_spaces(texts: pd.Series) -> pd.Series:
    """Numbers as texts, without spaces at the ends and between groups of thousands."""
    return texts.str.strip().str.replace(r"(?<=\d)\s(?=\d{3}(?!\d))", "", regex=True)


_DAYS = (
    *("ISO8601", "%Y/%m/%d", "%Y.%m.%d", "%Y年%m月%d日", "%Y-%m", "%Y/%m", "%d.%m.%Y", "%d.%m.%y"),
    *("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y"),
    *("%B %d, %Y", "%b %d %Y", "%d-%b-%Y", "%d-%b-%y", "%b %Y", "%B %Y", "%b-%y"),
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S")
FORMATS = (*_DAYS, *(day + clock for day, clock in product(_DAYS[1:], _CLOCKS[1:])), "%Y%m%d", "%Y%m%d %H:%M")
"""The formats of time stamps that are detected."""


def _parsed(texts: pd.Series, form: str) -> np.ndarray:
    """The time stamps of texts, `(R,)`, converted to UTC; an empty array if a text has another format."""
    stamps = pd.to_datetime(texts, format=form, errors="coerce", utc=True)
    if stamps.isna().any():
        return np.zeros(0, "datetime64[us]")
    return stamps.dt.tz_localize(None).to_numpy("datetime64[us]")


class Stamps:
    """Parses a column of time stamps, which must all have one format.

    Args:
        table: the table, for messages
        name: the name of the column
        form: the format, as in strptime; detected if empty
    """

    def __init__(self, table: Table, name: str, form: str = ""):
        self.table = table
        self.name = name
        self._forms = [form] if form else list(FORMATS)
        self._given = form
        self._parts: dict[str, list[np.ndarray]] | None = None

    def add(self, rows: np.ndarray, values: pd.Series) -> None:
        """Parse the next part of the column.

        Raises:
            DataError: a value is missing, or has another format than the previous ones
        """
        if values.isna().any():
            raise self._unread(rows, values, int(values.isna().to_numpy().argmax()))
        if pd.api.types.is_datetime64_any_dtype(values):
            stamps = values if values.dt.tz is None else values.dt.tz_convert(None)
            parts = {"": stamps.to_numpy("datetime64[us]")}
        elif pd.api.types.is_integer_dtype(values) and not self._given:
            parts = {"": values.to_numpy(np.int64)}
        else:
            parts = self._of_texts(rows, values.astype(str).str.strip())
        before = self._parts or {form: [] for form in parts}
        self._parts = {form: [*before[form], part] for form, part in parts.items() if form in before}

    def _of_texts(self, rows: np.ndarray, texts: pd.Series) -> dict[str, np.ndarray]:
        whole = texts.str.fullmatch(r"[+-]?\d+").all() and not self._given
        if whole and not texts.str.fullmatch(_COMPACT_DATE).all():
            return {"": texts.astype(np.int64).to_numpy()}
        first = [form for form in self._forms if len(_parsed(texts.iloc[:1], form))]
        by_format = {form: part for form in first if len(part := _parsed(texts, form))}
        if not by_format:
            place = 0
            if first:  # report the first value that no format can parse
                ends = [pd.to_datetime(texts, format=form, errors="coerce", utc=True).isna() for form in first]
                place = max(int(end.to_numpy().argmax()) for end in ends)
            raise self._unread(rows, texts, place)
        self._forms = list(by_format)
        return by_format

    def finished(self) -> tuple[np.ndarray, str]:
        """Return all time stamps, datetime64[us] or integers, `(R,)`, and the format if it was ambiguous at first.

        Raises:
            DataError: the format is ambiguous: several fit, and not exactly one gives regular time stamps
        """
        assert self._parts is not None
        whole = {form: np.concatenate(parts) for form, parts in self._parts.items()}
        distinct: dict[str, np.ndarray] = {}
        for form, stamps in whole.items():
            if not any(np.array_equal(stamps, other) for other in distinct.values()):
                distinct[form] = stamps
        if len(distinct) > 1:
            regular = {form: stamps for form, stamps in distinct.items() if _is_regular(stamps)}
            if len(regular) == 1:
                ((form, stamps),) = regular.items()
                return stamps, form
            (one, first), (other, second) = list(distinct.items())[:2]
            place = int(np.argmax(first != second))
            raise self.table.fault(
                None,
                f"column {self.name!r}: time stamp {place + 1} can be {shown(first[place])} or {shown(second[place])}, "
                f"and both fit the whole column; choose --time-format {one!r} for the first, --time-format {other!r} "
                "for the second",
            )
        ((form, stamps),) = distinct.items()
        return stamps, ""

    def _unread(self, rows: np.ndarray, values: pd.Series, place: int) -> DataError:
        value = values.iloc[place]
        return self.table.fault(
            int(rows[place]),
            f"column {self.name!r}: expected a time stamp such as 2024-01-31 13:00, or a whole number, got "
            f"{None if pd.isna(value) else value!r}; correct it, name another column with --time, or its form with "
            "--time-format",
        )


def _is_regular(times: np.ndarray) -> bool:
    """Whether the distinct time stamps of a column are equally spaced."""
    stamps = np.unique(times)
    if len(stamps) < 3:
        return True
    places, on_grid = infer(stamps).places(stamps)
    return bool(on_grid.all() and (np.diff(places) == 1).all())
