"""The frequency of the time stamps of a series, with their time zone and the form in which they are printed."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from glassgate.tasks.forecasting.series.zones import as_tzinfo, text_of
from glassgate.tasks.wording import plural

TIME, MONTH, WEEKDAY, STEP = "time", "month", "weekday", "step"

_SECOND = 1_000_000  # time stamps are counted in microseconds
_DAY = 24 * 3600 * _SECOND
_DURATIONS = {7 * _DAY: "week", _DAY: "day", 3600 * _SECOND: "hour", 60 * _SECOND: "minute", _SECOND: "second"}


@dataclass(frozen=True)
class Frequency:
    """The distance between the time stamps of a series.

    Attributes:
        unit: "time" (a fixed duration), "month", "weekday" (Monday to Friday), or "step" (time stamps are whole
            numbers)
        count: the distance from one time stamp to the next: microseconds for "time", otherwise the number of units
        last_day: whether each time stamp is the last day of its month
        form: the form in which time stamps are written, see `zones.find_form`; empty for the ISO form
        zone: the time zone, a name or an offset from UTC; empty if the time stamps have none
        is_local: whether the time stamps are local times of the zone; otherwise they are in UTC

    Example:
        >>> month = infer_frequency(np.array(["2024-01-31", "2024-02-29", "2024-03-31"], "datetime64[us]"))
        >>> str(month), month.times(np.datetime64("2024-01-31", "us"), np.array([3])).astype("datetime64[D]").tolist()
        ('1 month', [datetime.date(2024, 4, 30)])
    """

    unit: str
    count: int = 1
    last_day: bool = False
    form: str = field(default="", compare=False)
    zone: str = field(default="", compare=False)
    is_local: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if self.unit != TIME:
            return plural(self.count, self.unit)
        for length, name in _DURATIONS.items():
            if self.count % length == 0:
                return plural(self.count // length, name)
        return f"{self.count / _SECOND:g} seconds"

    @property
    def has_dates(self) -> bool:
        """Whether time stamps are dates, not whole numbers."""
        return self.unit != STEP

    @property
    def has_whole_days(self) -> bool:
        """Whether a step is a number of days, weekdays or months."""
        return self.has_dates and (self.unit != TIME or self.count % _DAY == 0)

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
        """Return a time stamp as text, in the form of the input. In the ISO form, steps of days have no time of day."""
        if not self.has_dates:
            return str(time)
        if self.form:
            return text_of(time, self.form, self.zone, self.is_local)
        text = format_time(time)
        return text.removesuffix(" 00:00:00") if self.has_whole_days else text

    def steps(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps from the first of some time stamps to each, rounded down, and whether they are exact.

        The time stamps are datetime64[us], or whole numbers; all shapes are `(L,)`.
        """
        if self.unit in (TIME, STEP):
            distances = (times - times[0]).astype(np.int64)
            return distances // self.count, distances % self.count == 0
        if self.unit == WEEKDAY:
            days = times.astype("datetime64[D]")
            steps = np.busday_count(days[0], days)
        else:
            months = times.astype("datetime64[M]").astype(np.int64)
            steps = (months - months[0]) // self.count
        return steps, self.times(times[0], steps) == times

    def times(self, start: np.generic, steps: np.ndarray) -> np.ndarray:
        """Return the time stamps that are `steps` steps after `start`."""
        distances = steps * self.count
        if self.unit == STEP:
            return np.asarray(start + distances)
        if self.unit == TIME:
            return np.asarray(start + distances.astype("timedelta64[us]"))
        day = start.astype("datetime64[D]")
        if self.unit == WEEKDAY:
            days = np.busday_offset(day, distances, roll="forward")
        else:
            months = day.astype("datetime64[M]") + distances.astype("timedelta64[M]")
            days = (months + 1).astype("datetime64[D]") - 1  # the last of each month
            if not self.last_day:
                days = np.minimum(months.astype("datetime64[D]") + (day - day.astype("datetime64[M]")), days)
        return np.asarray(days + (start - day))


def format_time(time: Any) -> str:
    """Return a time stamp as text: a date and time to the second, or a whole number."""
    return str(time.astype("datetime64[s]")).replace("T", " ") if time.dtype.kind == "M" else str(time)


def with_zone(times: np.ndarray, frequency: Frequency) -> Any:
    """Return time stamps, `(R,)`, as an index with the time zone of a frequency, if it has one."""
    if not frequency.zone:
        return times
    index, zone = pd.DatetimeIndex(times), as_tzinfo(frequency.zone)
    if not frequency.is_local:
        return index.tz_localize("UTC").tz_convert(zone)
    return index.tz_localize(zone, ambiguous=np.ones(len(index), bool), nonexistent="shift_forward")


def infer_frequency(times: np.ndarray) -> Frequency:
    """Return the frequency: the most common distance between adjacent time stamps, datetime64[us] or whole numbers.

    Raises:
        ValueError: no time stamp is later than the previous one

    Example:
        >>> str(infer_frequency(np.array([0, 3600, 7200], "datetime64[s]").astype("datetime64[us]")))
        '1 hour'
        >>> str(infer_frequency(np.array([1949, 1950, 1951])))
        '1 step'
    """
    distances = np.diff(times).astype(np.int64)
    if not (distances > 0).any():
        raise ValueError("no time stamp is later than the one before it")
    step = _most_common(distances)
    if times.dtype.kind != "M":
        return Frequency(STEP, step)
    stamps = pd.DatetimeIndex(times)
    same_time_of_day = (stamps - stamps.normalize()).nunique() == 1
    if step % _DAY or not same_time_of_day:
        return Frequency(TIME, step)
    all_last_days = bool(stamps.is_month_end.all())
    if step >= 28 * _DAY and (all_last_days or stamps.day.nunique() == 1):
        return Frequency(MONTH, _most_common(np.diff(times.astype("datetime64[M]").astype(np.int64))), all_last_days)
    if step == _DAY and (stamps.day_of_week < 5).all() and (distances == 3 * _DAY).any():
        return Frequency(WEEKDAY)
    return Frequency(TIME, step)


def _most_common(distances: np.ndarray) -> int:
    """The most common of the positive distances."""
    lengths, counts = np.unique(distances[distances > 0], return_counts=True)
    return int(lengths[counts.argmax()])


def calendar_features(frequency: Frequency, times: np.ndarray) -> np.ndarray:
    """Return the position of each time stamp in its year, week and day, as sines and cosines, `(L, C)`.

    The frequency determines the positions: year, week and day for hourly time stamps, year and week for daily ones,
    only the year for monthly ones.
    """
    stamps = pd.DatetimeIndex(times)
    positions = [(stamps.day_of_year - 1) / 365.25]
    if frequency.unit in (TIME, WEEKDAY) and frequency.count < 7 * _DAY:
        positions.append(stamps.day_of_week / 7)
    if frequency.unit == TIME and frequency.count < _DAY:
        positions.append((stamps - stamps.normalize()) / pd.Timedelta(days=1))
    angles = 2 * np.pi * np.stack([np.asarray(position, np.float64) for position in positions], 1)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)
