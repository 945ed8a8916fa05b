"""Statistics of the training part: scales, categories of static covariates, and errors of the naive forecast."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.series import Frequency, Series, Steps, calendar
from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.forecasting.windows import ColumnReader, array_of

_CHUNK = 2**20  # steps that are in memory at once


class Learned:
    """Encodes series with the statistics of the training part.

    Args:
        options: the options of the task
        fitted: the result of `learn`, as stored in a run
    """

    def __init__(self, options: ForecastingOptions, fitted: dict[str, Any]):
        self.options = options
        self.fitted = fitted
        self.frequency = Frequency(**fitted["frequency"])
        self.season = int(fitted["season"])

    @cached_property
    def indices(self) -> dict[str, int]:
        """The index of each series."""
        return {name: number for number, name in enumerate(self.fitted["series"])}

    @cached_property
    def known(self) -> int:
        """The number of covariates known ahead, including calendar and static ones."""
        clock = calendar(self.frequency, np.zeros(1, "datetime64[us]")).shape[1] if self.options.calendar else 0
        kinds = sum(len(each) if isinstance(each, dict) else 1 for each in self.fitted["static"])
        return len(self.fitted["known"]) + clock + kinds

    def encode(self, series: Series, ahead: int = 0) -> Encoded:
        """Return the fields of a series, with `ahead` steps after its end, whose values are 0.

        Raises:
            DataError: the series has another frequency, or too few covariates known ahead
        """
        if series.frequency != self.frequency:
            raise series.fault(
                f"expected steps of {self.frequency}, as in training, got {series.frequency}; bring them to that "
                "frequency, or train again"
            )
        if series.known and series.ahead < ahead:
            raise series.fault(
                f"expected covariates known ahead for {ahead} steps after the last value, got {series.ahead}; add rows "
                "with their time stamps and covariates, and leave the target empty"
            )
        known = self.fitted["series"].get(series.name)
        shift, scale, naive_mae, naive_mse = known or series_statistics(series, self.options, self.season, strict=False)
        length = len(series) + ahead
        disk = f"{series.on_disk} {series.name} {series.values.start} {series.start}" if series.on_disk else ""
        fields = {"values": array_of([_scaled(series.values, shift, scale)], length, disk, 1)}
        if self.known:
            fields["known"] = array_of(self._known(series), length, disk)
        if series.past:
            readers = [_scaled(each, *of) for each, of in zip(series.past, self.fitted["past"], strict=True)]
            fields["past"] = array_of(readers, length, disk)
        fields["series"] = np.array(self.indices.get(series.name, -1))
        scalars = {"shift": shift, "scale": scale, "naive_mae": naive_mae / scale, "naive_mse": naive_mse / scale**2}
        return fields | {name: np.array(value, np.float32) for name, value in scalars.items()}

    def _known(self, series: Series) -> list[ColumnReader]:
        readers = [_scaled(each, *of) for each, of in zip(series.known, self.fitted["known"], strict=True)]
        if self.options.calendar:
            readers.append(lambda start, stop: calendar(self.frequency, series.times(start, stop)))
        if series.static:
            row = np.concatenate(
                [_coded(each, of) for each, of in zip(series.static, self.fitted["static"], strict=True)]
            )
            readers.append(lambda start, stop: np.broadcast_to(row, (stop - start, len(row))))
        return readers


def learn(examples: Sequence[Series], options: ForecastingOptions) -> dict[str, Any]:
    """Return the statistics of training series, as JSON values.

    Raises:
        DataError: two series have the same name or different frequencies, a series is constant, or its values do not
            fit the head
    """
    first = examples[0]
    if options.calendar and not first.frequency.dated:
        raise first.fault("calendar: expected time stamps, got whole numbers; leave --calendar out, or see --time")
    season = season_of(examples, options, min(map(len, examples)))
    by_series: dict[str, list[float]] = {}
    for series in examples:
        if series.name in by_series:
            raise series.fault("two series have this name; rename one of them")
        if series.frequency != first.frequency:
            raise series.fault(f"expected steps of {first.frequency}, as of {first.name!r}, got {series.frequency}")
        by_series[series.name] = series_statistics(series, options, season)
    return {
        "season": season,
        "frequency": asdict(first.frequency),
        "series": by_series,
        "known": [
            list(_moments([each.known[k].part(0, len(each)) for each in examples])) for k in range(len(first.known))
        ],
        "past": [list(_moments([each.past[k] for each in examples])) for k in range(len(first.past))],
        "static": [_static_statistics([each.static[k] for each in examples]) for k in range(len(first.static))],
    }


def season_of(examples: Sequence[Series], options: ForecastingOptions, steps: int) -> int:
    """Return the length of a season: the option, or that of the frequency if the training part has two seasons."""
    if options.season and 2 * options.season > steps:
        raise examples[0].fault(
            f"season: expected two seasons of {options.season} steps in the training part, got {steps} steps; choose a "
            "shorter --season"
        )
    usual = examples[0].frequency.season
    return options.season or (usual if 2 * usual <= steps else 1)


def series_statistics(series: Series, options: ForecastingOptions, season: int, strict: bool = True) -> list[float]:
    """Return offset and divisor of a series, and mean absolute and squared error of its seasonal naive forecast.

    A series that is not in the training data is scaled by its first window only, because later values are unknown when
    the first forecast is made.

    Args:
        strict: whether a constant series raises an error
    """
    values = series.values if strict else series.values.part(0, options.steps_back)
    shift, scale = _moments([values])
    is_count = options.head == "negative-binomial"
    size, wrong, squared = 0.0, np.zeros(2), np.zeros(2)
    for start in range(0, len(values), _CHUNK):
        part = values[start : start + _CHUNK]
        size += float(np.abs(part).sum())
        if is_count and ((part < 0) | (part != part.round())).any():
            bad = part[((part < 0) | (part != part.round())).argmax()]
            raise series.fault(
                f"head: negative-binomial expects counts, 0, 1, 2 and so on, got {bad:g}; choose another --head"
            )
        for k, apart in enumerate((season, 1)):
            if len(values) > apart:
                before = values[max(0, start - apart) : start + len(part)]
                far = before[apart:] - before[:-apart]
                wrong[k] += np.abs(far).sum()
                squared[k] += (far**2).sum()
    if scale == 0:
        if strict:
            raise series.fault(
                f"the training part is constant, {shift:g} at all {len(series)} steps; nothing can be learned from it; "
                "leave the series out, naming the others with --target"
            )
        scale = 1.0
    if is_count:
        shift, scale = 0.0, 1 + size / max(1, len(values))
    k, apart = (0, season) if wrong[0] > 0 else (1, 1)
    count = max(1, len(values) - apart)
    return [shift, scale, float(wrong[k] / count) or scale, float(squared[k] / count) or scale**2]


def _moments(columns: Sequence[Steps]) -> tuple[float, float]:
    """The mean and the standard deviation of all numbers of columns."""
    count = max(1, sum(map(len, columns)))

    def mean_of(function: Any) -> float:
        parts = (each[at : at + _CHUNK] for each in columns for at in range(0, len(each), _CHUNK))
        return float(sum(function(part).sum() for part in parts)) / count

    mean = mean_of(lambda part: part)
    deviation = mean_of(lambda part: (part - mean) ** 2) ** 0.5
    return mean, deviation if deviation > 1e-12 * max(1.0, abs(mean)) else 0.0


def _static_statistics(values: Sequence[float | str]) -> Any:
    """The mean and standard deviation of a static covariate of numbers, or the index of each text."""
    if all(isinstance(each, float) for each in values):
        numbers = np.array(values)
        return [float(numbers.mean()), float(numbers.std())]
    return {text: number for number, text in enumerate(sorted({str(each) for each in values}))}


def _coded(value: float | str, of: Any) -> np.ndarray:
    if isinstance(of, dict):
        return np.array([float(str(value) == text) for text in of])
    number = value if isinstance(value, float) else of[0]
    return np.array([(number - of[0]) / (of[1] or 1.0)])


def _scaled(steps: Steps, shift: float, scale: float) -> ColumnReader:
    """A reader of a standardised column, with 0 after its end."""

    def read(start: int, stop: int) -> np.ndarray:
        values = (steps[start : min(stop, len(steps))] - shift) / (scale or 1.0)
        return np.pad(values, (0, stop - start - len(values)))[:, None]

    return read
