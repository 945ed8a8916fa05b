"""Statistics of the training data: scales, categories of static covariates, and errors of the naive forecast."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.store import Column
from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.forecasting.series import Frequency, Series, calendar_features
from glassgate.tasks.forecasting.windows import ColumnReader, array_of

_CHUNK = 2**20  # the number of steps that are in memory at once


class TrainingStatistics:
    """The statistics of the training data, and the encoding of series with them.

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
        """The index of each series of the training data, by its name."""
        return {name: number for number, name in enumerate(self.fitted["series"])}

    @cached_property
    def num_known(self) -> int:
        """The number of covariates known ahead, including calendar and static ones."""
        calendar_count = (
            calendar_features(self.frequency, np.zeros(1, "datetime64[us]")).shape[1] if self.options.calendar else 0
        )
        static_count = sum(len(each) if isinstance(each, dict) else 1 for each in self.fitted["static"])
        return len(self.fitted["known"]) + calendar_count + static_count

    def encode(self, series: Series, ahead: int = 0) -> Encoded:
        """Return the fields of a series, extended by `ahead` steps whose values are 0.

        Raises:
            DataError: the series has another frequency, or its covariates known ahead end too early
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
        statistics = self.fitted["series"].get(series.name)
        if statistics is None:
            statistics = series_statistics(series, self.options, self.season, training=False)
        shift, scale, naive_mae, naive_mse = statistics
        length = len(series) + ahead
        digest = f"{series.digest} {series.name} {series.values.start} {series.start}" if series.digest else ""
        fields = {"values": array_of([_scaled_reader(series.values, shift, scale)], length, digest, 1)}
        if self.num_known:
            fields["known"] = array_of(self._known_readers(series), length, digest)
        if series.past:
            fields["past"] = array_of(_scaled_readers(series.past, self.fitted["past"]), length, digest)
        fields["series"] = np.array(self.indices.get(series.name, -1))
        scalars = {"shift": shift, "scale": scale, "naive_mae": naive_mae / scale, "naive_mse": naive_mse / scale**2}
        return fields | {name: np.array(value, np.float32) for name, value in scalars.items()}

    def _known_readers(self, series: Series) -> list[ColumnReader]:
        readers = _scaled_readers(series.known, self.fitted["known"])
        if self.options.calendar:
            readers.append(lambda start, stop: calendar_features(self.frequency, series.times(start, stop)))
        if series.static:
            columns = zip(series.static, self.fitted["static"], strict=True)
            row = np.concatenate([_encode_static(value, statistics) for value, statistics in columns])
            readers.append(lambda start, stop: np.broadcast_to(row, (stop - start, len(row))))
        return readers


def learn(examples: Sequence[Series], options: ForecastingOptions) -> dict[str, Any]:
    """Return the statistics of training series, as JSON values.

    Raises:
        DataError: two series have the same name or different frequencies, a series is constant, or its values do not
            fit the head
    """
    first = examples[0]
    if options.calendar and not first.frequency.has_dates:
        raise first.fault("calendar: expected time stamps, got whole numbers; leave --calendar out, or see --time")
    season = season_of(examples, options, min(map(len, examples)))
    by_series: dict[str, list[float]] = {}
    for series in examples:
        if series.name in by_series:
            raise series.fault("two series have this name; rename one of them")
        if series.frequency != first.frequency:
            raise series.fault(f"expected steps of {first.frequency}, as in {first.name!r}, got {series.frequency}")
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
    """Return the number of steps of a season: the option, or the season of the frequency.

    The season of the frequency is replaced by 1 step if `steps` is less than two seasons.

    Args:
        steps: the number of steps of the shortest training part

    Raises:
        DataError: `steps` is less than two seasons of the option
    """
    if options.season and 2 * options.season > steps:
        raise examples[0].fault(
            f"season: expected two seasons of {options.season} steps in the training part, got {steps} steps; choose a "
            "shorter --season"
        )
    usual = examples[0].frequency.season
    return options.season or (usual if 2 * usual <= steps else 1)


def series_statistics(series: Series, options: ForecastingOptions, season: int, training: bool = True) -> list[float]:
    """Return the shift and scale of a series, and the mean absolute and squared errors of its seasonal naive forecast.

    If the seasonal naive forecast has no errors, or the series has no second season, the naive forecast replaces it.

    Args:
        training: whether all values are used, and a constant series is an error. Otherwise only the first look-back
            is used, because later values are unknown when the first forecast is made

    Raises:
        DataError: values do not fit the head, or the training series is constant
    """
    values = series.values if training else series.values.part(0, options.steps_back)
    shift, scale = _moments([values])
    is_count = options.head == "negative-binomial"
    absolute_sum = 0.0
    absolute_errors, squared_errors = np.zeros(2), np.zeros(2)  # of the seasonal naive and of the naive forecast
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        absolute_sum += float(np.abs(chunk).sum())
        if is_count and (is_wrong := (chunk < 0) | (chunk != chunk.round())).any():
            raise series.fault(
                "head: negative-binomial expects counts, 0, 1, 2 and so on, got "
                f"{chunk[is_wrong.argmax()]:g}; choose another --head"
            )
        for k, lag in enumerate((season, 1)):
            if len(values) > lag:
                extended = values[max(0, start - lag) : start + len(chunk)]
                errors = extended[lag:] - extended[:-lag]
                absolute_errors[k] += np.abs(errors).sum()
                squared_errors[k] += (errors**2).sum()
    if scale == 0:
        if training:
            raise series.fault(
                f"the training part is constant, {shift:g} at all {len(series)} steps; nothing can be learned from it; "
                "leave the series out, naming the others with --target"
            )
        scale = 1.0
    if is_count:
        shift, scale = 0.0, 1 + absolute_sum / max(1, len(values))
    k, lag = (0, season) if absolute_errors[0] > 0 else (1, 1)
    count = max(1, len(values) - lag)
    mean_absolute, mean_squared = float(absolute_errors[k] / count), float(squared_errors[k] / count)
    return [shift, scale, mean_absolute or scale, mean_squared or scale**2]


def _moments(columns: Sequence[Column]) -> tuple[float, float]:
    """The mean and the standard deviation of all numbers of columns; a deviation due to rounding errors becomes 0."""
    count = max(1, sum(map(len, columns)))

    def mean_of(function: Any) -> float:
        chunks = (column[start : start + _CHUNK] for column in columns for start in range(0, len(column), _CHUNK))
        return float(sum(function(chunk).sum() for chunk in chunks)) / count

    mean = mean_of(lambda chunk: chunk)
    deviation = mean_of(lambda chunk: (chunk - mean) ** 2) ** 0.5
    return mean, deviation if deviation > 1e-12 * max(1.0, abs(mean)) else 0.0


def _static_statistics(values: Sequence[float | str]) -> Any:
    """The mean and the standard deviation of a static covariate of numbers; for texts, the index of each text."""
    if all(isinstance(each, float) for each in values):
        numbers = np.array(values)
        return [float(numbers.mean()), float(numbers.std())]
    return {text: number for number, text in enumerate(sorted({str(each) for each in values}))}


def _encode_static(value: float | str, statistics: Any) -> np.ndarray:
    """A static covariate as a one-hot vector for texts, and as a standardised number otherwise."""
    if isinstance(statistics, dict):
        return np.array([float(str(value) == text) for text in statistics])
    mean, deviation = statistics
    number = value if isinstance(value, float) else mean
    return np.array([(number - mean) / (deviation or 1.0)])


def _scaled_readers(columns: Sequence[Column], statistics: Sequence[Sequence[float]]) -> list[ColumnReader]:
    return [
        _scaled_reader(column, mean, deviation) for column, (mean, deviation) in zip(columns, statistics, strict=True)
    ]


def _scaled_reader(steps: Column, shift: float, scale: float) -> ColumnReader:
    """A reader of a standardised column; it returns 0 after the end of the column."""

    def read(start: int, stop: int) -> np.ndarray:
        values = (steps[start : min(stop, len(steps))] - shift) / (scale or 1.0)
        return np.pad(values, (0, stop - start - len(values)))[:, None]

    return read
