"""Parses a column of time stamps, and finds their format."""

from itertools import product

import numpy as np
import pandas as pd

from glassgate.tasks.errors import DataError
from glassgate.tasks.forecasting.series.reader import Table
from glassgate.tasks.forecasting.series.schema import format_time, infer_frequency
from glassgate.tasks.forecasting.series.time_columns import (
    COMPACT_FORMATS,
    are_compact_dates,
    as_dates,
    serial_days_as_dates,
)
from glassgate.tasks.forecasting.series.zones import ISO_FORM, find_form, find_zone, offsets_of, to_local, zone_of_type

_DAYS = (
    *("ISO8601", "%Y/%m/%d", "%Y.%m.%d", "%Y年%m月%d日", "%Y-%m", "%Y/%m", "%d.%m.%Y", "%d.%m.%y"),
    *("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y"),
    *("%B %d, %Y", "%b %d %Y", "%d-%b-%Y", "%d-%b-%y", "%b %Y", "%B %Y", "%b-%y"),
    *("%a, %d %b %Y", "%a %d %b %Y"),
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S", " %H.%M.%S")
FORMATS = (*_DAYS, *(day + clock for day, clock in product(_DAYS[1:], _CLOCKS[1:])), *COMPACT_FORMATS, "%Y%m%d %H:%M")
"""The formats of time stamps that are detected."""


def _parse_times(texts: pd.Series, format: str) -> np.ndarray:
    """Parse time stamps in a format, and convert them to UTC, `(R,)`; an empty array if a text has another format."""
    stamps = pd.to_datetime(texts, format=format, errors="coerce", utc=True)
    if stamps.isna().any():
        return np.zeros(0, "datetime64[us]")
    return stamps.dt.tz_localize(None).to_numpy("datetime64[us]")


def is_date(text: str) -> bool:
    """Whether a text is a time stamp in one of `FORMATS`, or a quarter, month or week of a year."""
    if not any(map(str.isdigit, text)):
        return False
    if as_dates(pd.Series([text], dtype="string")) is not None:
        return True
    return any(len(_parse_times(pd.Series([text]), format)) for format in FORMATS)


class Stamps:
    """Parses a column of time stamps part by part. All time stamps must have one format.

    While several formats match all values so far, the column is parsed in each of them. `finish` chooses one.

    Args:
        table: the table, for messages
        name: the name of the column
        format: the format, as in `strptime`; detected if empty
        preferred: the format that is chosen if several match; empty to choose by regularity

    Attributes:
        zone: the time zone, a name or an offset; empty if the time stamps have none. Set by `finish`
        is_local: whether the time stamps are in local time, as with steps of a day or longer; otherwise they are in UTC
        form: the form in which the input is written, see `zones.find_form`; empty if it is unknown
    """

    def __init__(self, table: Table, name: str, format: str = "", preferred: str = ""):
        self.table = table
        self.name = name
        self._preferred = preferred
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
        dates = None if self._is_format_given else as_dates(texts.astype("string"))
        dates = serial_days_as_dates(texts, self.name) if dates is None and not self._is_format_given else dates
        texts = texts.str.replace(r"^([+-]?\d+)\.0+$", r"\1", regex=True) if dates is None else dates
        are_integers = texts.str.fullmatch(r"[+-]?\d+").all() and not self._is_format_given
        if are_integers and not are_compact_dates(texts):
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
        by_format, distinct = self._by_format(), self._distinct()
        if len(distinct) > 1 and self._preferred in by_format:
            return self._localised(by_format[self._preferred], self._preferred), self._preferred
        if len(distinct) > 1:
            if format := self.regular_format:
                return self._localised(by_format[format], format), format
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

    def _by_format(self) -> dict[str, np.ndarray]:
        return {format: np.concatenate(parts) for format, parts in (self._parts or {}).items()}

    def _distinct(self) -> dict[str, np.ndarray]:
        """The time stamps by the first format of those that give the same ones."""
        distinct: dict[str, np.ndarray] = {}
        for format, stamps in self._by_format().items():
            if not any(np.array_equal(stamps, other) for other in distinct.values()):
                distinct[format] = stamps
        return distinct

    @property
    def regular_format(self) -> str:
        """The only format, or the only one in which the time stamps are regular; empty if there is none."""
        distinct = self._distinct()
        regular = [format for format, stamps in distinct.items() if len(distinct) == 1 or _is_regular(stamps)]
        return regular[0] if len(regular) == 1 else ""

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
