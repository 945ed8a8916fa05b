"""Dates and times that are spread over several columns, and quarters of years."""

from collections.abc import Sequence

import pandas as pd

_DATE_NAMES, _CLOCK_NAMES = ("date", "day", "datum"), ("time", "hour", "zeit", "uhrzeit", "clock")
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
    if {"year", "month"} <= by_name.keys():
        parts = []
        for part in _PARTS:
            if part not in by_name:
                break
            parts.append(by_name[part])
        return tuple(parts)
    found = [[by_name[name] for name in usual if name in by_name] for usual in (_DATE_NAMES, _CLOCK_NAMES)]
    return (found[0][0], found[1][0]) if all(found) else ()


def join_columns(columns: Sequence[pd.Series], names: Sequence[str]) -> pd.Series:
    """Join the cells of time columns to time stamps as text.

    Example:
        >>> join_columns([pd.Series(["2013"]), pd.Series(["3"]), pd.Series(["1"]), pd.Series(["7"])], _PARTS[:4])[0]
        '2013-03-01 07:00:00'
        >>> join_columns([pd.Series(["1/3/2013"]), pd.Series(["7:00"])], ["Date", "Time"])[0]
        '1/3/2013 7:00'
    """
    texts = [column.astype("string").str.strip() for column in columns]
    if names[0].strip().lower() != "year":
        return texts[0] + " " + texts[1]
    first = pd.Series(["1", "0", "0", "0"][len(texts) - 2 :], dtype="string")  # of the parts without a column
    texts += [pd.Series(value, texts[0].index, "string") for value in first]
    year, month, day, hour, minute, second = (part.str.replace(r"\.0$", "", regex=True).str.zfill(2) for part in texts)
    return year + "-" + month + "-" + day + " " + hour + ":" + minute + ":" + second


def quarters_as_dates(texts: pd.Series) -> pd.Series | None:
    """Return the first day of each quarter of a year, such as 1950Q1; None if the texts are not all quarters.

    Example:
        >>> list(quarters_as_dates(pd.Series(["1950Q1", "1950-Q4", "Q2 1951"])))
        ['1950-01-01', '1950-10-01', '1951-04-01']
    """
    found = texts.str.extract(f"^{_QUARTER}$")
    number, year = found["number"].fillna(found["leading"]), found["first"].fillna(found["last"])
    if number.isna().any():
        return None
    return year + "-" + (3 * number.astype(int) - 2).astype(str).str.zfill(2) + "-01"
