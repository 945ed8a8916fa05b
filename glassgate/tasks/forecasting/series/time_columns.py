"""Dates and times that are spread over several columns, quarters, decimal years, and numbers that are times."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

_DATE_NAMES, _CLOCK_NAMES = ("date", "day", "datum"), ("time", "hour", "zeit", "uhrzeit", "clock")
CLOCK = r"\d{1,2}[:.]\d{2}([:.]\d{2}(\.\d+)?)?"
"""A time of day."""
COMPACT_FORMATS = ("%Y%m%d", "%Y%m%d%H", "%Y%m")
"""The formats of dates without separators."""
_COMPACT_DATE = r"(19|20)\d\d(0[1-9]|1[0-2])(([0-2]\d|3[01])([01]\d|2[0-3])?)?"
_SERIAL_DAYS = (20_000, 80_000)  # from 1954 to 2119
_SECONDS = (7e8, 3e9)  # since 1970, from 1992 to 2065
_MONTHS = {pd.Timestamp(2000, month, 1).strftime("%b").lower(): str(month) for month in range(1, 13)}
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_QUARTER = r"(?i:(?P<first>\d{4})[ -]?Q(?P<number>[1-4])|Q(?P<leading>[1-4])[ /-]?(?P<last>\d{4}))"


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
        parts = []
        for part in _PARTS:
            if part not in by_name:
                break
            parts.append(by_name[part])
        return tuple(parts)
    found = [[by_name[name] for name in usual if name in by_name] for usual in (_DATE_NAMES, _CLOCK_NAMES)]
    return (found[0][0], found[1][0]) if all(found) else ()


def find_parts(columns: Sequence[pd.Series]) -> int:
    """Return the number of first columns that contain years, months, and possibly days and hours; 0 if there are none.

    Example:
        >>> find_parts([pd.Series(["1958"] * 3), pd.Series(["3", "4", "5"]), pd.Series(["315.7", "317.4", "317.5"])])
        2
    """
    count = 0
    for column, (low, high) in zip(columns, ((1500, 2199), (1, 12), (1, 31), (0, 23)), strict=False):
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
    first = pd.Series(["1", "0", "0", "0"][len(texts) - 2 :], dtype="string")  # of the parts without a column
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
    for convert in (_quarters_as_dates, _months_as_dates, _weeks_as_dates, _decimal_years_as_dates):
        dates = convert(texts)
        if dates is not None:
            return dates
    return None


def serial_days_as_dates(texts: pd.Series, name: str) -> pd.Series | None:
    """Return dates for the numbers by which workbooks store dates, the days since 1899-12-30, in a column of dates.

    Example:
        >>> list(serial_days_as_dates(pd.Series(["45292", "45293.5"], dtype="string"), "Date"))
        ['2024-01-01 00:00:00', '2024-01-02 12:00:00']
    """
    numbers = pd.to_numeric(texts, errors="coerce")
    if name.strip().lower() not in _DATE_NAMES or not numbers.between(*_SERIAL_DAYS).all():
        return None
    dates = pd.Timestamp("1899-12-30") + pd.to_timedelta((numbers.astype(float) * 86400).round(), unit="s")
    return dates.dt.strftime("%Y-%m-%d %H:%M:%S").astype("string")


def _quarters_as_dates(texts: pd.Series) -> pd.Series | None:
    found = texts.str.extract(f"^{_QUARTER}$")
    number, year = found["number"].fillna(found["leading"]), found["first"].fillna(found["last"])
    if number.isna().any():
        return None
    return year + "-" + (3 * number.astype(int) - 2).astype(str).str.zfill(2) + "-01"


def _months_as_dates(texts: pd.Series) -> pd.Series | None:
    found = texts.str.extract(r"^(\d{4})[ -]?M(0?[1-9]|1[0-2])$")
    return None if found[0].isna().any() else found[0] + "-" + found[1].str.zfill(2) + "-01"


def _weeks_as_dates(texts: pd.Series) -> pd.Series | None:
    found = texts.str.extract(r"^(\d{4})[ -]?W(\d{2})$")
    if found[0].isna().any():
        return None
    weeks = found[0] + " " + found[1] + " 1"
    dates = pd.to_datetime(weeks, format="%G %V %u", errors="coerce")
    return None if dates.isna().any() else dates.dt.strftime("%Y-%m-%d").astype("string")


def _decimal_years_as_dates(texts: pd.Series) -> pd.Series | None:
    if len(texts) < 3 or not texts.str.fullmatch(r"(1[5-9]|20|21)\d\d\.\d+").all():
        return None
    numbers = texts.astype(float).to_numpy()
    if not np.allclose(np.diff(numbers), 1 / 12, atol=2e-3):
        return None
    months = np.floor(numbers * 12 + 0.02).astype(int)
    return pd.Series([f"{month // 12}-{month % 12 + 1:02d}-01" for month in months], texts.index, "string")


def are_decimal_years(texts: pd.Series) -> bool:
    """Whether texts are years with decimals that grow by a twelfth, such as 1958.2027."""
    return _decimal_years_as_dates(texts) is not None


def are_compact_dates(texts: pd.Series) -> bool:
    """Whether texts are dates without separators, of one length: 20240131, 2024013113 or 202401."""
    return bool(texts.str.fullmatch(_COMPACT_DATE).all()) and texts.str.len().nunique() == 1


def are_times(texts: pd.Series) -> bool:
    """Whether numbers are times: compact dates, months of decimal years, or growing seconds since 1970.

    The seconds may be counted in thousandths, millionths or billionths.
    """
    numbers = pd.to_numeric(texts, errors="coerce").to_numpy(float)
    differences = np.diff(numbers)
    if np.isnan(numbers).any() or not len(differences) or not ((differences > 0).all() or (differences < 0).all()):
        return are_compact_dates(texts) and texts.str.len().iloc[0] > 6
    if are_compact_dates(texts) or are_decimal_years(texts.astype("string")):
        return True
    is_whole = bool((numbers == np.floor(numbers)).all())
    return is_whole and any(
        (numbers >= _SECONDS[0] * unit).all() and (numbers <= _SECONDS[1] * unit).all() for unit in (1, 1e3, 1e6, 1e9)
    )


def counts_steps(texts: pd.Series) -> bool:
    """Whether numbers, some of them with decimals, grow by a constant, such as seconds since the start."""
    if not texts.str.contains(".", regex=False).any() or as_dates(texts.astype("string")) is not None:
        return False
    numbers = pd.to_numeric(texts, errors="coerce").to_numpy(float)
    if np.isnan(numbers).any() or len(numbers) < 3 or (numbers == np.floor(numbers)).all():
        return False
    differences = np.diff(numbers)
    return bool(differences[0] != 0 and np.allclose(differences, np.median(differences), rtol=1e-2))
