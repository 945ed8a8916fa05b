"""Parses time stamps: their formats, dates in several columns, quarters, decimal years, and numbers that are times."""

from collections.abc import Callable, Sequence
from itertools import product, takewhile

import numpy as np
import pandas as pd

from glassgate.tasks.data.kinds import is_number
from glassgate.tasks.errors import DataError
from glassgate.tasks.forecasting.series.frequency import format_time, infer_frequency
from glassgate.tasks.forecasting.series.zones import ISO_FORM, find_form, find_zone, offsets_of, to_local, zone_of_type

_DAYS = (
    *("ISO8601", "%Y/%m/%d", "%Y.%m.%d", "%Y年%m月%d日", "%Y-%m", "%Y/%m", "%d.%m.%Y", "%d.%m.%y"),
    *("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y"),
    *("%B %d, %Y", "%b %d %Y", "%d-%b-%Y", "%d-%b-%y", "%b %Y", "%B %Y", "%b-%y"),
    *("%a, %d %b %Y", "%a %d %b %Y"),
)
_CLOCKS = (" %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S", " %H.%M.%S")
_COMPACT_FORMATS = ("%Y%m%d", "%Y%m%d%H", "%Y%m")
_FORMATS = (*_DAYS, *map("".join, product(_DAYS[1:], _CLOCKS)), *_COMPACT_FORMATS, "%Y%m%d %H:%M")
CLOCK = r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?|\d{1,2}\.\d{2}\.\d{2}"
"""A time of day. With points it has seconds, as 20.50 is a number."""
_DATE_NAMES, _CLOCK_NAMES = ("date", "day", "datum"), ("time", "hour", "zeit", "uhrzeit", "clock")
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_RANGES = ((1500, 2199), (1, 12), (1, 31), (0, 23))  # of years, months, days and hours
_MONTHS = {pd.Timestamp(2000, month, 1).strftime("%b").lower(): str(month) for month in range(1, 13)}
_COMPACT_DATE = r"(19|20)\d\d(0[1-9]|1[0-2])(([0-2]\d|3[01])([01]\d|2[0-3])?)?"
_QUARTER = r"^(?i:(?P<first>\d{4})[ -]?Q(?P<number>[1-4])|Q(?P<leading>[1-4])[ /-]?(?P<last>\d{4}))$"
_MONTH, _WEEK = r"^(\d{4})[ -]?M(0?[1-9]|1[0-2])$", r"^(\d{4})[ -]?W(\d{2})$"
_SERIAL_DAYS = (20_000, 80_000)  # from 1954 to 2119
_SECONDS = (7e8, 3e9)  # since 1970, from 1992 to 2065


def _parse(texts: pd.Series, format: str) -> pd.Series:
    return pd.to_datetime(texts, format=format, errors="coerce", utc=True)


def is_date(text: str) -> bool:
    """Whether a text is a time stamp in a format that is detected, or a quarter, month or week of a year."""
    if not any(map(str.isdigit, text)):
        return False
    texts = pd.Series([text], dtype="string")
    return as_dates(texts) is not None or any(_parse(texts, format).notna().all() for format in _FORMATS)


class Stamps:
    """Parses a column of time stamps part by part. All time stamps must have one format.

    While several formats match all values so far, the column is parsed in each of them. `finish` chooses one.

    Args:
        fault: returns the error with a message about a row, or about the whole table
        name: the name of the column
        format: the format, as in `strptime`; detected if empty
        preferred: the format that is chosen if several match; empty to choose by regularity

    `finish` sets `zone`, `is_local` (for steps of a day or longer) and `form`, which `Frequency` describes.
    """

    def __init__(self, fault: Callable[[int | None, str], DataError], name: str, format: str = "", preferred: str = ""):
        self._fault, self.name, self._preferred = fault, name, preferred
        self._is_format_given = bool(format)
        self._candidates = [format] if format else list(_FORMATS)
        self._parts: dict[str, list[np.ndarray]] | None = None  # by format; "" for values that are not parsed
        self._texts: list[str] = []  # the first and the last text of each part
        self._offsets: list[np.ndarray | None] = []
        self.zone = self.form = ""
        self.is_local = False

    def add(self, values: pd.Series) -> None:
        """Parse the next part of the column, indexed by row numbers: time stamps, whole numbers, or texts of them."""
        if values.isna().any():
            raise self._parse_error(values, int(values.isna().to_numpy().argmax()))
        if pd.api.types.is_datetime64_any_dtype(values):
            if values.dt.tz is not None:
                self.zone, self.form = zone_of_type(values.dt.tz, values.iloc[0]), ISO_FORM
                values = values.dt.tz_convert(None)
            parts = {"": values.to_numpy("datetime64[us]")}
        elif pd.api.types.is_integer_dtype(values) and not self._is_format_given:
            parts = {"": values.to_numpy(np.int64)}
        else:
            texts = values.astype(str).str.strip()
            parts = self._parse_texts(texts)
            self._texts += [texts.iloc[0], texts.iloc[-1]]
            self._offsets.append(offsets_of(texts))
        previous = self._parts or {format: [] for format in parts}
        self._parts = {format: [*previous[format], part] for format, part in parts.items() if format in previous}

    def _parse_texts(self, texts: pd.Series) -> dict[str, np.ndarray]:
        """The time stamps of texts in UTC, by each format that matches all of them."""
        if not self._is_format_given:
            dates = as_dates(texts.astype("string"))
            dates = _serial_days_as_dates(texts, self.name) if dates is None else dates
            texts = texts.str.replace(r"^([+-]?\d+)\.0+$", r"\1", regex=True) if dates is None else dates
            if texts.str.fullmatch(r"[+-]?\d+").all() and not _are_compact_dates(texts):
                return {"": texts.astype(np.int64).to_numpy()}
        candidates = [format for format in self._candidates if _parse(texts.iloc[:1], format).notna().all()]
        parsed = {format: _parse(texts, format) for format in candidates}
        self._candidates = [format for format, stamps in parsed.items() if stamps.notna().all()]
        if not self._candidates:  # report the first value that no format can parse
            index = max((int(stamps.isna().to_numpy().argmax()) for stamps in parsed.values()), default=0)
            raise self._parse_error(texts, index)
        return {format: parsed[format].dt.tz_localize(None).to_numpy("datetime64[us]") for format in self._candidates}

    def finish(self) -> tuple[np.ndarray, str]:
        """Return the time stamps, datetime64[us] or integers, `(R,)`, and the format, empty if there was no choice."""
        distinct = self._distinct()
        format, *others = distinct
        chosen = ""
        if others:
            chosen = self._preferred if self._preferred in (self._parts or {}) else self.regular_format
            if not chosen:
                index = int(np.argmax(distinct[format] != distinct[others[0]]))
                time, other_time = (format_time(distinct[each][index]) for each in (format, others[0]))
                raise self._fault(
                    None,
                    f"column {self.name!r}: time stamp {index + 1} can be {time} or {other_time}, and both fit the "
                    f"whole column; choose --time-format {format!r} for the first, --time-format {others[0]!r} for the "
                    "second",
                )
        format = chosen or format
        return self._localised(np.concatenate((self._parts or {})[format]), format), chosen

    @property
    def regular_format(self) -> str:
        """The only format, or the only one in which the time stamps are regular; empty if there is none."""
        distinct = self._distinct()
        regular = [format for format, stamps in distinct.items() if len(distinct) == 1 or _is_regular(stamps)]
        return regular[0] if len(regular) == 1 else ""

    def _distinct(self) -> dict[str, np.ndarray]:
        """The time stamps by the first format of those that give the same ones."""
        distinct: dict[str, np.ndarray] = {}
        for format, parts in (self._parts or {}).items():
            stamps = np.concatenate(parts)
            if not any(np.array_equal(stamps, other) for other in distinct.values()):
                distinct[format] = stamps
        return distinct

    def _localised(self, stamps: np.ndarray, format: str) -> np.ndarray:
        """Set the zone and the form, and return the time stamps, in local time if a step is a day or longer."""
        if stamps.dtype.kind != "M":
            return stamps
        offsets = [each for each in self._offsets if each is not None]
        if offsets and len(offsets) == len(self._offsets):
            self.zone = find_zone(stamps, np.concatenate(offsets))
        if self.zone:
            local = to_local(stamps, self.zone)
            times = np.unique(local)
            if len(times) > 1 and infer_frequency(times).has_whole_days:
                self.is_local, stamps = True, local
        if self._texts:
            pairs = [(self._texts[0], stamps[0]), (self._texts[-1], stamps[-1])]
            self.form = find_form(format, pairs, self.zone, self.is_local)
        return stamps

    def _parse_error(self, values: pd.Series, index: int) -> DataError:
        value = values.iloc[index]
        return self._fault(
            int(values.index[index]),
            f"column {self.name!r}: expected a time stamp such as 2024-01-31 13:00, or a whole number, got "
            f"{None if pd.isna(value) else value!r}; correct it, name another column with --time, or name the format "
            "with --time-format",
        )


def _is_regular(times: np.ndarray) -> bool:
    """Whether the distinct time stamps of a column have one frequency, without gaps."""
    stamps = np.unique(times)
    if len(stamps) < 3:
        return True
    steps, on_grid = infer_frequency(stamps).steps(stamps)
    return bool(on_grid.all() and (np.diff(steps) == 1).all())


def find_time_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that together contain the time stamps: a date and a time of day, or year, month and so on.

    Example:
        >>> find_time_columns(["No", "year", "month", "day", "hour", "pm2.5"])
        ('year', 'month', 'day', 'hour')
        >>> find_time_columns(["Date", "Time", "Load"]), find_time_columns(["Date", "Load"])
        (('Date', 'Time'), ())
    """
    by_name = {name.strip().lower(): name for name in names}
    if {"year", "quarter"} <= by_name.keys():
        return (by_name["year"], by_name["quarter"])
    if {"year", "month"} <= by_name.keys():
        return tuple(by_name[part] for part in takewhile(by_name.__contains__, _PARTS))
    found = [[by_name[name] for name in usual if name in by_name] for usual in (_DATE_NAMES, _CLOCK_NAMES)]
    return (found[0][0], found[1][0]) if all(found) else ()


def count_parts(columns: Sequence[pd.Series]) -> int:
    """Return the number of first columns that contain years, months, and possibly days and hours; 0 if there are none.

    Example:
        >>> count_parts([pd.Series(["1958"] * 3), pd.Series(["3", "4", "5"]), pd.Series(["315.7", "317.4", "317.5"])])
        2
    """
    count = 0
    for column, (low, high) in zip(columns, _RANGES, strict=False):
        numbers = pd.to_numeric(column, errors="coerce")
        if not column.astype("string").str.fullmatch(r"\d{1,4}").all() or not numbers.between(low, high).all():
            break
        if count and numbers.nunique() < 2:
            break
        count += 1
    return count if count > 1 else 0


def join_columns(columns: Sequence[pd.Series], names: Sequence[str]) -> pd.Series:
    """Join the cells of time columns to time stamps as text.

    Example:
        >>> join_columns([pd.Series(["2013"]), pd.Series(["3"]), pd.Series(["1"]), pd.Series(["7"])], _PARTS[:4])[0]
        '2013-03-01 07:00:00'
        >>> join_columns([pd.Series(["1/3/2013"]), pd.Series(["7:00"])], ["Date", "Time"])[0]
        '1/3/2013 7:00'
    """
    texts = [column.astype("string").str.strip() for column in columns]
    if not texts[0].str.fullmatch(r"\d{4}(\.0)?").all():
        return texts[0] + " " + texts[1]
    if names[1].strip().lower() == "quarter":
        return texts[0] + "Q" + texts[1].str.removeprefix("Q")
    texts[1] = texts[1].str[:3].str.lower().map(_MONTHS).astype("string").fillna(texts[1])
    first = ["1", "0", "0", "0"][len(texts) - 2 :]  # of the parts without a column
    texts += [pd.Series(value, texts[0].index, "string") for value in first]
    year, month, day, hour, minute, second = (part.str.replace(r"\.0$", "", regex=True).str.zfill(2) for part in texts)
    return year + "-" + month + "-" + day + " " + hour + ":" + minute + ":" + second


def as_dates(texts: pd.Series) -> pd.Series | None:
    """Return dates for quarters, months such as 1950M01, weeks such as 1950-W01, and years with decimals.

    A quarter, a month and a week begin on the date. Decimals that grow by a twelfth are months. None for other texts.

    Example:
        >>> list(as_dates(pd.Series(["1950Q1", "1950-Q4", "Q2 1951"], dtype="string")))
        ['1950-01-01', '1950-10-01', '1951-04-01']
        >>> list(as_dates(pd.Series(["1949.0", "1949.083", "1949.167"], dtype="string")))
        ['1949-01-01', '1949-02-01', '1949-03-01']
    """
    found = texts.str.extract(_QUARTER)
    year, number = found["first"].fillna(found["last"]), found["number"].fillna(found["leading"])
    if number.notna().all():
        return year + "-" + (3 * number.astype(int) - 2).astype(str).str.zfill(2) + "-01"
    found = texts.str.extract(_MONTH)
    if found[0].notna().all():
        return found[0] + "-" + found[1].str.zfill(2) + "-01"
    found = texts.str.extract(_WEEK)
    if found[0].notna().all():
        dates = pd.to_datetime(found[0] + " " + found[1] + " 1", format="%G %V %u", errors="coerce")
        if dates.notna().all():
            return dates.dt.strftime("%Y-%m-%d").astype("string")
    return _decimal_years_as_dates(texts)


def _decimal_years_as_dates(texts: pd.Series) -> pd.Series | None:
    if len(texts) < 3 or not texts.str.fullmatch(r"(1[5-9]|20|21)\d\d\.\d+").all():
        return None
    numbers = texts.astype(float).to_numpy()
    if not np.allclose(np.diff(numbers), 1 / 12, atol=2e-3):
        return None
    months = np.floor(numbers * 12 + 0.02).astype(int)
    return pd.Series([f"{month // 12}-{month % 12 + 1:02d}-01" for month in months], texts.index, "string")


def _serial_days_as_dates(texts: pd.Series, name: str) -> pd.Series | None:
    """Dates for the numbers by which workbooks store dates, the days since 1899-12-30, in a column of dates.

    Example:
        >>> list(_serial_days_as_dates(pd.Series(["45292", "45293.5"], dtype="string"), "Date"))
        ['2024-01-01 00:00:00', '2024-01-02 12:00:00']
    """
    numbers = pd.to_numeric(texts, errors="coerce")
    if name.strip().lower() not in _DATE_NAMES or not numbers.between(*_SERIAL_DAYS).all():
        return None
    dates = pd.Timestamp("1899-12-30") + pd.to_timedelta((numbers.astype(float) * 86400).round(), unit="s")
    return dates.dt.strftime("%Y-%m-%d %H:%M:%S").astype("string")


def _are_compact_dates(texts: pd.Series) -> bool:
    """Whether texts are dates without separators, of one length: 20240131, 2024013113 or 202401."""
    return bool(texts.str.fullmatch(_COMPACT_DATE).all()) and texts.str.len().nunique() == 1


def are_second_times(texts: pd.Series) -> bool:
    """Whether a column contains dates, times of day or decimal years, in addition to the column of time stamps."""
    if not len(texts):
        return False
    if texts.str.fullmatch(CLOCK.replace("[:.]", ":")).all() or _decimal_years_as_dates(texts) is not None:
        return True
    return not is_number(texts.iloc[0]) and is_date(texts.iloc[0])


def are_times(texts: pd.Series) -> bool:
    """Whether numbers are times: compact dates, months of decimal years, or growing seconds since 1970.

    The seconds may be counted in thousandths, millionths or billionths.
    """
    numbers = _numbers(texts)
    differences = np.diff(numbers)
    if np.isnan(numbers).any() or not len(differences) or not ((differences > 0).all() or (differences < 0).all()):
        return _are_compact_dates(texts) and texts.str.len().iloc[0] > 6
    if _are_compact_dates(texts) or _decimal_years_as_dates(texts) is not None:
        return True
    ranges = [(_SECONDS[0] * unit <= numbers) & (numbers <= _SECONDS[1] * unit) for unit in (1, 1e3, 1e6, 1e9)]
    return bool((numbers == np.floor(numbers)).all()) and any(each.all() for each in ranges)


def counts_steps(texts: pd.Series) -> bool:
    """Whether numbers, some of them with decimals, grow by a constant, such as seconds since the start."""
    if not texts.str.contains(".", regex=False).any() or as_dates(texts) is not None:
        return False
    numbers = _numbers(texts)
    if np.isnan(numbers).any() or len(numbers) < 3 or (numbers == np.floor(numbers)).all():
        return False
    differences = np.diff(numbers)
    return bool(differences[0] != 0 and np.allclose(differences, np.median(differences), rtol=1e-2))


def _numbers(texts: pd.Series) -> np.ndarray:
    return pd.to_numeric(texts, errors="coerce").to_numpy(float, na_value=np.nan)
