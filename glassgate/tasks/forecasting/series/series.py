"""Time series at regular time stamps, in memory or on disk."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glassgate.tasks.data.store import ArrayRange
from glassgate.tasks.errors import DataError
from glassgate.tasks.forecasting.series.frequency import STEP, Frequency

_STEPS = Frequency(STEP)


@dataclass(frozen=True, slots=True)
class Series:
    """One series of numbers at regular time stamps, with its covariates.

    Attributes:
        values: the target, `(L,)`
        name: the name of the series
        start: the first time stamp: a `datetime64[us]`, or a whole number
        frequency: the distance between time stamps
        past: covariates known up to the present, `(L,)` each
        known: covariates known ahead, for A steps after the last value, `(L + A,)` each
        static: properties of the series as a whole
        source: the file that contains the series
        line: the line of `source` at which the series begins; None if `source` is not a text file
        columns: the names of two columns: the one that identifies the series, and the one with the time stamps
        is_long: whether the table has a column that identifies the series
    """

    values: ArrayRange
    name: str = ""
    start: Any = 0
    frequency: Frequency = _STEPS
    past: tuple[ArrayRange, ...] = ()
    known: tuple[ArrayRange, ...] = ()
    static: tuple[float | str, ...] = ()
    source: str = "given series"
    line: int | None = None
    columns: tuple[str, str] = ("series", "time")
    is_long: bool = False

    def __len__(self) -> int:
        return len(self.values)

    @property
    def ahead(self) -> int:
        """The number of steps after the last value for which covariates are known."""
        return len(self.known[0]) - len(self) if self.known else 0

    @property
    def digest(self) -> str:
        """The digest of the cached file; empty if the series is in memory."""
        return self.values.digest

    def part(self, start: int, stop: int) -> "Series":
        """Return the steps from `start` to `stop`, with all later values of the covariates known ahead."""
        stop = min(stop, len(self))
        start_time = self.frequency.times(self.start, np.array([start]))[0]
        past = tuple(covariate.part(start, stop) for covariate in self.past)
        known = tuple(covariate.part(start, len(covariate)) for covariate in self.known)
        return replace(self, values=self.values.part(start, stop), start=start_time, past=past, known=known)

    def times(self, start: int, stop: int) -> np.ndarray:
        """Return the time stamps of the steps from `start` to `stop`, which may be after the end of the series."""
        return self.frequency.times(self.start, np.arange(start, stop))

    def fault(self, message: str) -> DataError:
        """Return an error about the series."""
        return DataError(self.source, self.line, f"series {self.name!r}: {message}" if self.name else message)


def series_of(values: np.ndarray, name: str = "", start: Any = 0, frequency: Frequency | None = None) -> Series:
    """Return a series of numbers in memory. By default its time stamps are whole numbers from 0.

    Example:
        >>> len(series_of(np.arange(5.0)))
        5
    """
    return Series(ArrayRange(np.asarray(values, np.float64)), name, start, frequency or _STEPS)
