"""The roles of the columns of a table of time series, and the frequency of its time stamps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from glassgate.tasks.wording import plural

MISSING = ("error", "last")
TIME_NAMES = ("ds", "date", "time", "timestamp", "datetime", "__index_level_0__")
"""Usual names of the column of time stamps. Parquet files call the index of a pandas frame `__index_level_0__`."""
TIME, MONTH, WEEKDAY, STEP = "time", "month", "weekday", "step"

_SECOND = 1_000_000  # time stamps are counted in microseconds
_DAY = 24 * 3600 * _SECOND
_DURATIONS = (
    (7 * _DAY, "week"),
    (_DAY, "day"),
    (3600 * _SECOND, "hour"),
    (60 * _SECOND, "minute"),
    (_SECOND, "second"),
)


@dataclass(frozen=True)
class Schema:
    """The role of each column of a table.

    Attributes:
        target: the columns to forecast, each of which is a series; all columns without another role if empty
        time: the column of time stamps; detected if None
        series: the column with the name of each row's series, in a table that contains several series; detected if None
        past: covariates that are known up to the present
        known: covariates that are also known for the future
        static: numbers or texts that are constant for a series
        time_format: the format of the time stamps, as strptime takes it; detected if empty
        missing: how gaps are handled: "error" raises an error, "last" repeats the value before the gap
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


@dataclass(frozen=True)
class Frequency:
    """The distance between the time stamps of a series.

    Attributes:
        unit: "time" (a fixed duration), "month", "weekday" (Monday to Friday), or "step" (stamps are whole numbers)
        count: microseconds, months, weekdays or whole numbers from one stamp to the next
        last_day: whether each stamp is the last day of its month

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
        for length, name in _DURATIONS:
            if self.count % length == 0:
                return plural(self.count // length, name)
        return f"{self.count / _SECOND:g} seconds"

    @property
    def dated(self) -> bool:
        """Whether stamps are dates, not whole numbers."""
        return self.unit != STEP

    @property
    def season(self) -> int:
        """The number of steps in the usual season of a series with this frequency; 1 if there is none."""
        if self.unit == MONTH:
            return 12 // self.count if 12 % self.count == 0 else 1
        if self.unit != TIME:
            return 5 if (self.unit, self.count) == (WEEKDAY, 1) else 1
        steps = {7 * _DAY: 52, _DAY: 7}.get(self.count)
        return steps or (_DAY // self.count if self.count < _DAY and _DAY % self.count == 0 else 1)

    def text(self, time: Any) -> str:
        """Return a time stamp as text, without the time of day if a step is a day or longer.

        Example:
            >>> Frequency(MONTH).text(np.datetime64("2024-01-31", "us"))
            '2024-01-31'
        """
        if not self.dated:
            return str(time)
        text = shown(time)
        whole_days = self.unit != TIME or self.count % _DAY == 0
        return text.removesuffix(" 00:00:00") if whole_days else text

    def places(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how many steps each time stamp is after the first one.

        Args:
            times: `(L,)`, datetime64[us], or whole numbers

        Returns:
            the numbers of steps, `(L,)`, and whether each stamp is a whole number of steps after the first one, `(L,)`
        """
        if self.unit in (TIME, STEP):
            distances = (times - times[0]).astype(np.int64)
            return distances // self.count, distances % self.count == 0
        if self.unit == WEEKDAY:
            days = times.astype("datetime64[D]")
            places = np.busday_count(days[0], days)
        else:
            months = times.astype("datetime64[M]").astype(np.int64)
            places = (months - months[0]) // self.count
        return places, self.times(times[0], places) == times

    def times(self, start: np.generic, places: np.ndarray) -> np.ndarray:
        """Return the time stamps that are `places` steps after `start`."""
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
    """Return a time stamp, to the second, or a whole number as text."""
    return str(time.astype("datetime64[s]")).replace("T", " ") if time.dtype.kind == "M" else str(time)


def infer(times: np.ndarray) -> Frequency:
    """Return the frequency: the most common distance between adjacent time stamps.

    Args:
        times: `(L,)`, at least two of them different

    Example:
        >>> str(infer(np.array([0, 3600, 7200], "datetime64[s]").astype("datetime64[us]")))
        '1 hour'
        >>> str(infer(np.array([1949, 1950, 1951])))
        '1 step'
    """
    distances = np.diff(times).astype(np.int64)
    lengths, counts = np.unique(distances[distances > 0], return_counts=True)
    if not len(lengths):
        raise ValueError("no time stamp is later than the one before it")
    step = int(lengths[counts.argmax()])
    if times.dtype.kind != "M":
        return Frequency(STEP, step)
    stamps = pd.DatetimeIndex(times)
    same_clock = (stamps - stamps.normalize()).nunique() == 1
    if step % _DAY or not same_clock:
        return Frequency(TIME, step)
    all_last_days = bool(stamps.is_month_end.all())
    if step >= 28 * _DAY and (all_last_days or stamps.day.nunique() == 1):
        months = np.diff(times.astype("datetime64[M]").astype(np.int64))
        lengths, counts = np.unique(months[months > 0], return_counts=True)
        return Frequency(MONTH, int(lengths[counts.argmax()]), all_last_days)
    if step == _DAY and (stamps.day_of_week < 5).all() and (distances == 3 * _DAY).any():
        return Frequency(WEEKDAY)
    return Frequency(TIME, step)


def calendar(frequency: Frequency, times: np.ndarray) -> np.ndarray:
    """Return the position of each time stamp in its year, week and day, as sines and cosines, `(L, C)`.

    The frequency decides which of the positions are included: hourly stamps have all three, daily stamps those in the
    week and the year, monthly stamps only that in the year.
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
