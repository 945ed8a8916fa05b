"""The columns of a table of time series by their role, and the frequency of its time stamps."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from glassgate.tasks.wording import plural

MISSING = ("error", "last")
TIME_NAMES = ("ds", "date", "time", "timestamp", "datetime")
TIME, MONTH, WEEKDAY, STEP = "time", "month", "weekday", "step"

_SECOND = 1_000_000  # time stamps are counted in microseconds
_DAY = 24 * 3600 * _SECOND
_NAMES = ((7 * _DAY, "week"), (_DAY, "day"), (3600 * _SECOND, "hour"), (60 * _SECOND, "minute"), (_SECOND, "second"))


@dataclass(frozen=True)
class Schema:
    """The role of each column of a table.

    Attributes:
        target: columns to forecast, each a series; all columns without another role if empty
        time: the column of time stamps; detected if None
        series: the column of the series' names, in a table with several series one below the other; detected if None
        past: covariates that are known up to the present
        known: covariates that are known ahead
        static: numbers or texts that belong to a series as a whole
        time_format: the format of the time stamps, as strptime takes it; detected if empty
        missing: how gaps are filled: "error", or "last" for the value before
        decimal: the decimal mark, "." or ","; detected if empty
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

    def with_columns(self, time: str | None, series: str | None, target: tuple[str, ...]) -> "Schema":
        """Return the schema with the roles that were detected."""
        return replace(self, time=time, series=series, target=target)


@dataclass(frozen=True)
class Frequency:
    """The distance between the time stamps of a series.

    Attributes:
        unit: "time" of equal length, "month", "weekday" (Monday to Friday), or "step" where stamps are whole numbers
        count: microseconds, months, weekdays or whole numbers from one stamp to the next
        last_day: whether stamps of months are their last days

    Example:
        >>> days = infer(np.array(["2024-01-31", "2024-02-29", "2024-03-31"], "datetime64[us]"))
        >>> str(days), days.times(np.datetime64("2024-01-31", "us"), np.array([3])).astype("datetime64[D]").tolist()
        ('1 month', [datetime.date(2024, 4, 30)])
    """

    unit: str
    count: int = 1
    last_day: bool = False

    def __str__(self) -> str:
        if self.unit != TIME:
            return plural(self.count, self.unit)
        for length, name in _NAMES:
            if self.count % length == 0:
                return plural(self.count // length, name)
        return f"{self.count / _SECOND:g} seconds"

    @property
    def dated(self) -> bool:
        """Whether stamps are dates, not whole numbers."""
        return self.unit != STEP

    @property
    def season(self) -> int:
        """Steps of the usual season of such series; 1 without one."""
        if self.unit == MONTH:
            return 12 // self.count if 12 % self.count == 0 else 1
        if self.unit != TIME:
            return 5 if (self.unit, self.count) == (WEEKDAY, 1) else 1
        whole = {7 * _DAY: 52, _DAY: 7}.get(self.count)
        return whole or (_DAY // self.count if self.count < _DAY and _DAY % self.count == 0 else 1)

    def text(self, time: Any) -> str:
        """Write a time stamp; the hour of a day is left out where steps are days or longer.

        Example:
            >>> Frequency(MONTH).text(np.datetime64("2024-01-31", "us"))
            '2024-01-31'
        """
        if not self.dated:
            return str(time)
        seconds = shown(time)
        long = self.unit != TIME or self.count % _DAY == 0
        return seconds.removesuffix(" 00:00:00") if long else seconds

    def places(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number time stamps from the first one on.

        Args:
            times: `(L,)`, datetime64[us], or whole numbers

        Returns:
            the places, `(L,)`, and whether each stamp is on the grid of the first one, `(L,)`
        """
        if self.unit in (TIME, STEP):
            far = (times - times[0]).astype(np.int64)
            return far // self.count, far % self.count == 0
        if self.unit == WEEKDAY:
            days = times.astype("datetime64[D]")
            places = np.busday_count(days[0], days)
        else:
            months = times.astype("datetime64[M]").astype(np.int64)
            places = (months - months[0]) // self.count
        return places, self.times(times[0], places) == times

    def times(self, start: np.generic, places: np.ndarray) -> np.ndarray:
        """Return the time stamps at places counted from a first one."""
        if self.unit == STEP:
            return np.asarray(start + places * self.count)
        if self.unit == TIME:
            return np.asarray(start + (places * self.count).astype("timedelta64[us]"))
        day = start.astype("datetime64[D]")
        if self.unit == WEEKDAY:
            return np.busday_offset(day, places * self.count, roll="forward") + (start - day)
        months = day.astype("datetime64[M]") + (places * self.count).astype("timedelta64[M]")
        last = (months + 1).astype("datetime64[D]") - 1
        if self.last_day:
            return np.asarray(last + (start - day))
        return np.minimum(months.astype("datetime64[D]") + (day - day.astype("datetime64[M]")), last) + (start - day)


def shown(time: Any) -> str:
    """Write a time stamp to the second, or a whole number."""
    return str(time.astype("datetime64[s]")).replace("T", " ") if time.dtype.kind == "M" else str(time)


def infer(times: np.ndarray) -> Frequency:
    """Return the most common distance between time stamps.

    Args:
        times: `(L,)`, at least two of them different

    Example:
        >>> str(infer(np.array([0, 3600, 7200], "datetime64[s]").astype("datetime64[us]")))
        '1 hour'
        >>> str(infer(np.array([1949, 1950, 1951])))
        '1 step'
    """
    far = np.diff(times).astype(np.int64)
    sizes, counts = np.unique(far[far > 0], return_counts=True)
    if not len(sizes):
        raise ValueError("no two time stamps of which the second is later")
    most = int(sizes[counts.argmax()])
    if times.dtype.kind != "M":
        return Frequency(STEP, most)
    stamps = pd.DatetimeIndex(times)
    same_clock = (stamps - stamps.normalize()).nunique() == 1
    if most % _DAY or not same_clock:
        return Frequency(TIME, most)
    ends = bool(stamps.is_month_end.all())
    if most >= 28 * _DAY and (ends or stamps.day.nunique() == 1):
        months = np.diff(times.astype("datetime64[M]").astype(np.int64))
        numbers, counts = np.unique(months[months > 0], return_counts=True)
        return Frequency(MONTH, int(numbers[counts.argmax()]), ends)
    if most == _DAY and (stamps.day_of_week < 5).all() and (far == 3 * _DAY).any():
        return Frequency(WEEKDAY)
    return Frequency(TIME, most)


def calendar(frequency: Frequency, times: np.ndarray) -> np.ndarray:
    """Return the place of each time stamp in its year, week and day, as sines and cosines, `(L, C)`.

    Parts that the frequency cannot distinguish are left out: hours have all three, days have week and year, months
    have the year.
    """
    stamps = pd.DatetimeIndex(times)
    parts = [(stamps.day_of_year - 1) / 365.25]
    short = frequency.unit in (TIME, WEEKDAY)
    if short and frequency.count < 7 * _DAY:
        parts.append(stamps.day_of_week / 7)
    if frequency.unit == TIME and frequency.count < _DAY:
        parts.append((stamps - stamps.normalize()) / pd.Timedelta(days=1))
    angles = 2 * np.pi * np.stack([np.asarray(part, np.float64) for part in parts], 1)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)
