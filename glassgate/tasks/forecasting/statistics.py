"""Statistics of the training data: scales, categories of static covariates, and errors of the naive forecast."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, cast

import numpy as np

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.store import ArrayRange, LazyArray
from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.forecasting.series import Frequency, Series, calendar_features


class TrainingStatistics:
    """The statistics of the training data, `fitted` as `learn` returns them, and the encoding of series with them."""

    def __init__(self, options: ForecastingOptions, fitted: dict[str, Any]):
        self.options, self.fitted = options, fitted
        self.frequency = Frequency(**fitted["frequency"])
        self.season = int(fitted["season"])
        self.indices = {name: number for number, name in enumerate(fitted["series"])}

    @cached_property
    def num_known(self) -> int:
        """The number of covariates known ahead, including calendar and static ones."""
        times = np.zeros(1, "datetime64[us]")
        calendar_count = calendar_features(self.frequency, times).shape[1] if self.options.calendar else 0
        static_count = sum(len(each) if isinstance(each, dict) else 1 for each in self.fitted["static"])
        return len(self.fitted["known"]) + calendar_count + static_count

    def encode(self, series: Series, ahead: int = 0) -> Encoded:
        """Return the fields of a series, extended by `ahead` steps whose values are 0."""
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
        fitted, length = self.fitted, len(series) + ahead
        statistics = fitted["series"].get(series.name)
        if statistics is None:
            statistics = _series_statistics(series, self.options, self.season, training=False)
        shift, scale, naive_mae, naive_mse = statistics
        digest = f"{series.digest} {series.name} {series.values.start} {series.start}" if series.digest else ""
        columns = zip(series.static, fitted["static"], strict=True)
        static = np.concatenate([_encode_static(*each) for each in columns] or [np.zeros(0)])

        def array(read: Callable[[int, int], np.ndarray]) -> np.ndarray:
            """The values as float32, `(L, C)` or `(L,)`; those of a series on disk are read when they are sliced."""
            lazy = LazyArray(lambda start, stop: read(start, stop).astype(np.float32), length, digest.encode())
            return cast(np.ndarray, lazy) if digest else lazy[0:length]

        def known(start: int, stop: int) -> np.ndarray:
            parts = [_scaled(series.known, fitted["known"], start, stop)]
            if self.options.calendar:
                parts.append(calendar_features(self.frequency, series.times(start, stop)))
            return np.concatenate([*parts, np.broadcast_to(static, (stop - start, len(static)))], 1)

        fields = {"values": array(lambda *span: _scaled([series.values], [(shift, scale)], *span)[:, 0])}
        if self.num_known:
            fields["known"] = array(known)
        if series.past:
            fields["past"] = array(lambda *span: _scaled(series.past, fitted["past"], *span))
        fields["series"] = np.array(self.indices.get(series.name, -1))
        scalars = {"shift": shift, "scale": scale, "naive_mae": naive_mae / scale, "naive_mse": naive_mse / scale**2}
        return fields | {name: np.array(value, np.float32) for name, value in scalars.items()}


def learn(examples: Sequence[Series], options: ForecastingOptions) -> dict[str, Any]:
    """Return the statistics of training series, as JSON values."""
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
        by_series[series.name] = _series_statistics(series, options, season)
    known = ([each.known[k].part(0, len(each)) for each in examples] for k in range(len(first.known)))
    past = ([each.past[k] for each in examples] for k in range(len(first.past)))
    return {
        "season": season,
        "frequency": asdict(first.frequency),
        "series": by_series,
        "known": [_moments([each[:] for each in columns]) for columns in known],
        "past": [_moments([each[:] for each in columns]) for columns in past],
        "static": [_static_statistics(values) for values in zip(*(each.static for each in examples), strict=True)],
    }


def season_of(examples: Sequence[Series], options: ForecastingOptions, steps: int) -> int:
    """Return the steps of a season: the option; or that of the frequency, if the shortest training part has two."""
    if options.season and 2 * options.season > steps:
        raise examples[0].fault(
            f"season: expected two seasons of {options.season} steps in the training part, got {steps} steps; choose a "
            "shorter --season"
        )
    usual = examples[0].frequency.season
    return options.season or (usual if 2 * usual <= steps else 1)


def _series_statistics(series: Series, options: ForecastingOptions, season: int, training: bool = True) -> list[float]:
    """The shift and scale of a series, and the mean absolute and squared errors of its seasonal naive forecast.

    If the seasonal naive forecast has no errors, or the series has no second season, the naive forecast replaces it.
    Outside of training, only the first look-back is used, because later values are unknown when the first forecast is
    made, and a constant series is not an error.
    """
    values = series.values[: len(series) if training else options.steps_back]
    shift, scale = _moments([values])
    is_count = options.head == "negative-binomial"
    if is_count and (is_wrong := (values < 0) | (values != values.round())).any():
        raise series.fault(
            "head: negative-binomial expects counts, 0, 1, 2 and so on, got "
            f"{values[is_wrong.argmax()]:g}; choose another --head"
        )
    if scale == 0 and training:
        raise series.fault(
            f"the training part is constant, {shift:g} at all {len(series)} steps; nothing can be learned from it; "
            "leave the series out, naming the others with --target"
        )
    scale = scale or 1.0
    if is_count:
        shift, scale = 0.0, 1 + float(np.abs(values).mean())
    errors = values[season:] - values[:-season]
    if not errors.any():
        errors = np.diff(values)
    if not errors.any():
        return [shift, scale, scale, scale**2]
    return [shift, scale, float(np.abs(errors).mean()), float((errors**2).mean())]


def _moments(columns: Sequence[np.ndarray]) -> list[float]:
    """The mean and the standard deviation of all numbers of columns; a deviation due to rounding errors becomes 0."""
    count = max(1, sum(map(len, columns)))
    mean = float(sum(column.sum() for column in columns)) / count
    deviation = (float(sum(((column - mean) ** 2).sum() for column in columns)) / count) ** 0.5
    return [mean, deviation if deviation > 1e-12 * max(1.0, abs(mean)) else 0.0]


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


def _scaled(columns: Sequence[ArrayRange], moments: Sequence[Sequence[float]], start: int, stop: int) -> np.ndarray:
    """Steps of standardised columns, `(stop - start, C)`; 0 after the end of a column."""
    values = np.zeros((stop - start, len(columns)))
    for k, (column, (mean, deviation)) in enumerate(zip(columns, moments, strict=True)):
        part = column[start : min(stop, len(column))]
        values[: len(part), k] = (part - mean) / (deviation or 1.0)
    return values
