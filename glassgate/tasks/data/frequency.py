"""Time stamps on a regular grid: how far apart they are, which place each has, and which comes next."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from glassgate.tasks.plural import plural

TIME, MONTH, WEEKDAY, STEP = "time", "month", "weekday", "step"

_SECOND = 1_000_000  # time stamps are counted in microseconds
_DAY = 24 * 3600 * _SECOND
_NAMES = ((7 * _DAY, "week"), (_DAY, "day"), (3600 * _SECOND, "hour"), (60 * _SECOND, "minute"), (_SECOND, "second"))


@dataclass(frozen=True)
class Frequency:
    """How far apart the time stamps of a series are.

    Attributes:
        unit: "time" of equal length, "month", "weekday" (Monday to Friday), or "step" where stamps are whole numbers
        count: so many microseconds, months, weekdays or whole numbers from one stamp to the next
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
        """Steps of the season that such series usually have; 1 where they have none."""
        if self.unit == MONTH:
            return 12 // self.count if 12 % self.count == 0 else 1
        if self.unit != TIME:
            return 5 if (self.unit, self.count) == (WEEKDAY, 1) else 1
        whole = {7 * _DAY: 52, _DAY: 7}.get(self.count)
        return whole or (_DAY // self.count if self.count < _DAY and _DAY % self.count == 0 else 1)

    def text(self, time: Any) -> str:
        """Write a time stamp as people do, a day without its hour where steps are days or longer.

        Example:
            >>> Frequency(MONTH).text(np.datetime64("2024-01-31", "us"))
            '2024-01-31'
        """
        if not self.dated:
            return str(time)
        seconds = str(time.astype("datetime64[s]")).replace("T", " ")
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
        days, clock = _days(times)
        same = clock == clock[0]
        if self.unit == WEEKDAY:
            places = np.busday_count(days[0], days) if len(days) else np.zeros(0, np.int64)
            return places, same & np.is_busday(days)
        months = days.astype("datetime64[M]").astype(np.int64)
        far = months - months[0]
        wanted = self.times(times[0], far // self.count)
        return far // self.count, same & (wanted == times)

    def times(self, start: np.generic, places: np.ndarray) -> np.ndarray:
        """Return the time stamps at places counted from a first one."""
        if self.unit == STEP:
            return np.asarray(start + places * self.count)
        if self.unit == TIME:
            return np.asarray(start + (places * self.count).astype("timedelta64[us]"))
        days, clock = _days(np.array([start]))
        if self.unit == WEEKDAY:
            return np.busday_offset(days[0], places * self.count) + clock[0]
        months = days[0].astype("datetime64[M]") + (places * self.count).astype("timedelta64[M]")
        last = (months + 1).astype("datetime64[D]") - 1
        if self.last_day:
            return last + clock[0]
        day = (days[0] - days[0].astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64)
        return np.minimum(months.astype("datetime64[D]") + day, last) + clock[0]


def infer(times: np.ndarray) -> Frequency:
    """Find out how far apart time stamps are, by what is most common.

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
    days, clock = _days(times)
    if most % _DAY or (clock != clock[0]).any():
        return Frequency(TIME, most)
    if most >= 28 * _DAY:
        months = days.astype("datetime64[M]")
        ends = bool((((months + 1).astype("datetime64[D]") - 1) == days).all())
        if ends or len(np.unique(days - months.astype("datetime64[D]"))) == 1:
            apart = np.diff(months.astype(np.int64))
            numbers, counts = np.unique(apart[apart > 0], return_counts=True)
            return Frequency(MONTH, int(numbers[counts.argmax()]), ends)
    if most == _DAY and np.is_busday(days).all() and (far == 3 * _DAY).any():
        return Frequency(WEEKDAY)
    return Frequency(TIME, most)


def calendar(frequency: Frequency, times: np.ndarray) -> np.ndarray:
    """Return where in its day, week and year each time stamp is, as sines and cosines, `(L, C)`.

    A part that the frequency cannot tell apart is left out: of hours all three are given, of days week and year, of
    months the year alone.
    """
    days, clock = _days(times)
    year = days.astype("datetime64[Y]").astype("datetime64[D]")
    turns = [(days - year).astype(np.int64) / 365.25]
    short = frequency.unit in (TIME, WEEKDAY)
    if short and frequency.count < 7 * _DAY:
        turns.append(((days.astype(np.int64) + 3) % 7) / 7)
    if frequency.unit == TIME and frequency.count < _DAY:
        turns.append(clock.astype(np.int64) / _DAY)
    angles = 2 * np.pi * np.stack(turns, 1)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


def _days(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The days of time stamps, and how late in the day each is."""
    days = times.astype("datetime64[D]")
    return days, times - days
