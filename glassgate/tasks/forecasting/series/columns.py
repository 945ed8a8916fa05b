"""Detects the roles of the columns of a table of time series, and parses their numbers and time stamps."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.forecasting.series.reader import Table
from glassgate.tasks.forecasting.series.schema import TIME_NAMES, Schema, format_time, infer_frequency
from glassgate.tasks.forecasting.series.time_columns import find_time_columns, quarters_as_dates
from glassgate.tasks.forecasting.series.zones import ISO_FORM, find_form, find_zone, offsets_of, to_local, zone_of_type

_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
"""The texts that denote a missing number."""
_ROW_NUMBER_NAMES = ("", "no", "nr", "id", "index", "row", "rownames", "unnamed: 0")
_COMPACT_DATE = r"(19|20)\d\d[01]\d[0-3]\d"
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
    elif time is None and (time_columns := find_time_columns(names)):
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
    parts_of_time = table.joined.get(time or "", ())
    columns_with_role = {series, *schema.past, *schema.known, *schema.static, *schema.target}
    if time is None and names[0] not in columns_with_role and _has_times(table, names[0]):
        time = names[0]
    other_columns = {time, series, *schema.past, *schema.known, *schema.static}
    other_columns |= {*parts_of_time}
    target = schema.target or tuple(name for name in names if name not in other_columns)
    if not schema.target and len(target) > 1:
        target = tuple(name for name in target if not _numbers_rows(table, name))
    if series is not None and not schema.target and "y" in target:
        target = ("y",)
    if not target:
        raise table.fault(None, f"expected a column of numbers to forecast, got {', '.join(map(repr, names))}")
    if repeated := other_columns & {*target}:
        raise OptionError(
            f"target: {repeated.pop()!r} holds the time stamps, the names of series or a covariate; name another column"
        )
    return replace(schema, time=time, series=series, target=target)


def _numbers_rows(table: Table, name: str) -> bool:
    """Whether a column has a name such as "No" and counts the rows."""
    if name.strip().lower() not in _ROW_NUMBER_NAMES:
        return False
    part = next((part[name] for _, part in table.parts([name])), pd.Series(dtype=float))
    numbers = pd.to_numeric(part, errors="coerce")
    return len(numbers) > 1 and bool((numbers.diff().iloc[1:] == 1).all())


def _has_times(table: Table, name: str) -> bool:
    """Whether a column contains time stamps: it begins with a date, or it is called "year" and has distinct values."""
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
    if quarters_as_dates(pd.Series([text], dtype="string")) is not None:
        return True
    return any(len(_parse_times(pd.Series([text]), format)) for format in FORMATS)


def _check_header(table: Table) -> None:
    """Check that the first row is a header. A row of numbers is a header only if it numbers the columns from 0."""
    if not (table.is_text or table.kind == "xlsx") or not table.has_header:
        return
    first = table.names[0].strip()
    is_row_of_numbers = all(map(_is_number, table.names)) and list(map(str, range(len(table.names)))) != table.names
    if is_row_of_numbers or (not _is_number(first) and _is_date(first)):
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
        self.decimal = decimal or (self._detect_decimal(names) if table.is_text else ".")

    def _detect_decimal(self, names: Sequence[str]) -> str:
        """The decimal mark that some number requires; a point if all numbers are whole."""
        first_ambiguous: tuple[str, str, int] | None = None
        for rows, part in self.table.parts(names):
            for name in names:
                texts = _without_spaces(part[name])
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
        if np.isinf(numbers).any():
            row = int(rows[np.isinf(numbers).argmax()])
            raise self.table.fault(row, f"column {name!r}: expected a number, got infinity")
        return numbers

    def _parse(self, name: str, rows: np.ndarray, values: pd.Series) -> np.ndarray:
        texts = values.astype("string").str.strip()
        texts = python_numbers = texts.mask(texts.isin(_MISSING))
        if self.table.is_text:
            thousands_mark = "." if self.decimal == "," else ","
            python_numbers = _without_spaces(texts).str.replace(
                rf"(?<=\d){re.escape(thousands_mark)}(?=\d{{3}}(?!\d))", "", regex=True
            )
            python_numbers = python_numbers.str.replace(self.decimal, ".", regex=False)
        numbers = pd.to_numeric(python_numbers, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        is_invalid = np.isnan(numbers) & texts.notna().to_numpy(bool)
        if is_invalid.any():
            index = int(is_invalid.argmax())
            raise self.table.fault(
                int(rows[index]),
                f"column {name!r}: expected a number, got {texts.iloc[index]!r}; correct it, or name the columns of "
                "numbers to forecast with --target, and a column of the series' names with --series",
            )
        return numbers


def _without_spaces(texts: pd.Series) -> pd.Series:
    """Remove the spaces at the ends of numbers and between their groups of thousands."""
    return texts.str.strip().str.replace(r"(?<=\d)\s(?=\d{3}(?!\d))", "", regex=True)


_DAYS = (
    *("ISO8601", "%Y/%m/%d", "%Y.%m.%d", "%Y年%m月%d日", "%Y-%m", "%Y/%m", "%d.%m.%Y", "%d.%m.%y"),
    *("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y"),
    *("%B %d, %Y", "%b %d %Y", "%d-%b-%Y", "%d-%b-%y", "%b %Y", "%B %Y", "%b-%y"),
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S")
FORMATS = (*_DAYS, *(day + clock for day, clock in product(_DAYS[1:], _CLOCKS[1:])), "%Y%m%d", "%Y%m%d %H:%M")
"""The formats of time stamps that are detected."""


def _parse_times(texts: pd.Series, format: str) -> np.ndarray:
    """Parse time stamps in a format, and convert them to UTC, `(R,)`; an empty array if a text has another format."""
    stamps = pd.to_datetime(texts, format=format, errors="coerce", utc=True)
    if stamps.isna().any():
        return np.zeros(0, "datetime64[us]")
    return stamps.dt.tz_localize(None).to_numpy("datetime64[us]")


class Stamps:
    """Parses a column of time stamps part by part. All time stamps must have one format.

    While several formats match all values so far, the column is parsed in each of them. `finish` chooses one.

    Args:
        table: the table, for messages
        name: the name of the column
        format: the format, as in `strptime`; detected if empty

    Attributes:
        zone: the time zone, a name or an offset; empty if the time stamps have none. Set by `finish`
        is_local: whether the time stamps are in local time, as with steps of a day or longer; otherwise they are in UTC
        form: the form in which the input is written, see `zones.find_form`; empty if it is unknown
    """

    def __init__(self, table: Table, name: str, format: str = ""):
        self.table = table
        self.name = name
        self._candidates = [format] if format else list(FORMATS)
        self._is_format_given = bool(format)
        self._parts: dict[str, list[np.ndarray]] | None = None  # by format; "" for values that are not parsed
        self._texts: list[str] = []  # the first and the last text of each part
        self._offsets: list[np.ndarray] | None = []  # None if a time stamp has none
        self.zone = self.form = ""
        self.is_local = False

    def add(self, rows: np.ndarray, values: pd.Series) -> None:
        """Parse the next part of the column.

        Args:
            rows: the numbers of the rows in the table, `(R,)`, for messages
            values: time stamps or whole numbers, possibly as text

        Raises:
            DataError: a value is missing, or has another format than the previous ones
        """
        if values.isna().any():
            raise self._parse_error(rows, values, int(values.isna().to_numpy().argmax()))
        if pd.api.types.is_datetime64_any_dtype(values):
            stamps = values if values.dt.tz is None else values.dt.tz_convert(None)
            parts = {"": stamps.to_numpy("datetime64[us]")}
            if values.dt.tz is not None:
                self.zone, self.form = zone_of_type(values.dt.tz, values.iloc[0]), ISO_FORM
        elif pd.api.types.is_integer_dtype(values) and not self._is_format_given:
            parts = {"": values.to_numpy(np.int64)}
        else:
            texts = values.astype(str).str.strip()
            parts = self._parse_texts(rows, texts)
            self._texts += [texts.iloc[0], texts.iloc[-1]]
            offsets = None if self._offsets is None else offsets_of(texts)
            self._offsets = None if self._offsets is None or offsets is None else [*self._offsets, offsets]
        previous = self._parts or {format: [] for format in parts}
        self._parts = {format: [*previous[format], part] for format, part in parts.items() if format in previous}

    def _parse_texts(self, rows: np.ndarray, texts: pd.Series) -> dict[str, np.ndarray]:
        """The time stamps of texts, by each format that matches all of them."""
        quarters = None if self._is_format_given else quarters_as_dates(texts.astype("string"))
        texts = texts if quarters is None else quarters
        are_integers = texts.str.fullmatch(r"[+-]?\d+").all() and not self._is_format_given
        if are_integers and not texts.str.fullmatch(_COMPACT_DATE).all():
            return {"": texts.astype(np.int64).to_numpy()}
        candidates = [format for format in self._candidates if len(_parse_times(texts.iloc[:1], format))]
        by_format = {format: part for format in candidates if len(part := _parse_times(texts, format))}
        if not by_format:
            index = 0
            if candidates:  # report the first value that no format can parse
                parsed = (pd.to_datetime(texts, format=each, errors="coerce", utc=True) for each in candidates)
                index = max(int(stamps.isna().to_numpy().argmax()) for stamps in parsed)
            raise self._parse_error(rows, texts, index)
        self._candidates = list(by_format)
        return by_format

    def finish(self) -> tuple[np.ndarray, str]:
        """Choose one of the formats that match all values.

        Returns:
            the time stamps, datetime64[us] or integers, `(R,)`; and the format, empty if there was no choice

        Raises:
            DataError: several formats match, and none or several of them give regular time stamps
        """
        assert self._parts is not None
        by_format = {format: np.concatenate(parts) for format, parts in self._parts.items()}
        distinct: dict[str, np.ndarray] = {}
        for format, stamps in by_format.items():
            if not any(np.array_equal(stamps, other) for other in distinct.values()):
                distinct[format] = stamps
        if len(distinct) > 1:
            regular = {format: stamps for format, stamps in distinct.items() if _is_regular(stamps)}
            if len(regular) == 1:
                ((format, stamps),) = regular.items()
                return self._localised(stamps, format), format
            (format, stamps), (other_format, other_stamps) = list(distinct.items())[:2]
            index = int(np.argmax(stamps != other_stamps))
            time, other_time = format_time(stamps[index]), format_time(other_stamps[index])
            raise self.table.fault(
                None,
                f"column {self.name!r}: time stamp {index + 1} can be {time} or {other_time}, and both fit the whole "
                f"column; choose --time-format {format!r} for the first, --time-format {other_format!r} for the second",
            )
        ((format, stamps),) = distinct.items()
        return self._localised(stamps, format), ""

    def _localised(self, stamps: np.ndarray, format: str) -> np.ndarray:
        """Set the zone and the form, and return the time stamps, in local time if a step is a day or longer."""
        if stamps.dtype.kind != "M":
            return stamps
        if self._texts and self._offsets:
            self.zone = find_zone(stamps, np.concatenate(self._offsets))
        if self.zone and _has_whole_days(local := to_local(stamps, self.zone)):
            self.is_local, stamps = True, local
        if self._texts:
            pairs = [(self._texts[0], stamps[0]), (self._texts[-1], stamps[-1])]
            self.form = find_form(format, pairs, self.zone, self.is_local)
        return stamps

    def _parse_error(self, rows: np.ndarray, values: pd.Series, index: int) -> DataError:
        value = values.iloc[index]
        return self.table.fault(
            int(rows[index]),
            f"column {self.name!r}: expected a time stamp such as 2024-01-31 13:00, or a whole number, got "
            f"{None if pd.isna(value) else value!r}; correct it, name another column with --time, or name the format "
            "with --time-format",
        )


def _has_whole_days(times: np.ndarray) -> bool:
    """Whether the usual distance of the time stamps is a day or longer, in days, weeks or months."""
    stamps = np.unique(times)
    return len(stamps) > 1 and infer_frequency(stamps).has_whole_days


def _is_regular(times: np.ndarray) -> bool:
    """Whether the distinct time stamps of a column have one frequency, without gaps."""
    stamps = np.unique(times)
    if len(stamps) < 3:
        return True
    steps, on_grid = infer_frequency(stamps).steps(stamps)
    return bool(on_grid.all() and (np.diff(steps) == 1).all())
