"""Converts forecasts to rows, data frames and pictures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from glassgate.tasks.forecasting.series import Series
from glassgate.tasks.forecasting.series.zones import with_zone
from glassgate.tasks.pictures.charts import save_figure

PICTURE = "forecasts.png"
MAX_DRAWN = 4
"""The maximum number of series in a picture."""


class Forecast(NamedTuple):
    """The forecast of the steps after an origin, in units of the data.

    Attributes:
        values: the point forecast of each step
        quantiles: the quantiles of each step, one per level; None for heads without quantiles
    """

    values: list[float]
    quantiles: list[list[float]] | None


class OriginForecast(NamedTuple):
    """A forecast from one origin of a series, with the true values and two naive forecasts, in units of the data.

    Attributes:
        series: the series
        start: the index of the first forecast step
        forecast: the forecast of the model
        past: the values before the origin that the model reads
        target: the true values of the forecast steps; empty if they are unknown
        naive: the naive forecast, which repeats the last value
        seasonal: the seasonal naive forecast, which repeats the last season
    """

    series: Series
    start: int
    forecast: Forecast
    past: list[float]
    target: list[float]
    naive: list[float]
    seasonal: list[float]


def header(origins: Sequence[OriginForecast], levels: Sequence[float]) -> list[str]:
    """Return the names of the columns of `rows`."""
    series, time = origins[0].series.columns
    shown_levels = levels if origins[0].forecast.quantiles else ()
    return [series, time, "forecast", *(f"q{level:g}" for level in shown_levels)]


def rows(series: Series, start: int, forecast: Forecast) -> Iterator[list[str]]:
    """Yield a row for each step from `start` on: the name of the series, the time stamp, value and quantiles."""
    times = series.times(start, start + len(forecast.values))
    for k, (time, value) in enumerate(zip(times, forecast.values, strict=True)):
        quantiles = forecast.quantiles[k] if forecast.quantiles else []
        yield [series.name, series.frequency.text(time), *(f"{each:.6g}" for each in (value, *quantiles))]


def long_frame(origins: Sequence[OriginForecast], levels: Sequence[float]) -> Any:
    """Return a pandas frame with a row for each forecast step, and the columns of `header`."""
    blocks = [
        [np.repeat(each.series.name, len(each.forecast.values)), _times(each), *_columns(each)] for each in origins
    ]
    columns: list[Any] = [np.concatenate(column) for column in zip(*blocks, strict=True)]
    columns[1] = _in_zone(columns[1], origins[0].series)
    return pd.DataFrame(dict(zip(header(origins, levels), columns, strict=True)))


def wide_frame(origins: Sequence[OriginForecast], levels: Sequence[float]) -> Any:
    """Return a pandas frame with a column of time stamps, and for each series its forecast and quantiles as columns.

    The columns of quantiles are named as in darts, "load_q0.100". If a series ends before others, its missing forecasts
    are NaN.
    """
    times = np.unique(np.concatenate([_times(each) for each in origins]))
    columns: dict[str, Any] = {origins[0].series.columns[1]: _in_zone(times, origins[0].series)}
    for origin in origins:
        rows_of_series = np.searchsorted(times, _times(origin))
        names = [origin.series.name, *(f"{origin.series.name}_q{level:.3f}" for level in levels)]
        for name, values in zip(names, _columns(origin), strict=False):
            columns[name] = np.full(len(times), np.nan)
            columns[name][rows_of_series] = values
    return pd.DataFrame(columns)


def _in_zone(times: np.ndarray, series: Series) -> Any:
    """Time stamps in the time zone of a series, if it has one."""
    frequency = series.frequency
    return with_zone(times, frequency.zone, frequency.is_local) if frequency.zone else times


def _times(origin: OriginForecast) -> np.ndarray:
    return origin.series.times(origin.start, origin.start + len(origin.forecast.values))


def _columns(origin: OriginForecast) -> list[np.ndarray]:
    """The columns of a forecast: its values and its quantiles, if any."""
    return [np.array(origin.forecast.values), *np.array(origin.forecast.quantiles or []).T]


def fan_picture(origins: Sequence[OriginForecast], levels: Sequence[float], path: Path) -> None:
    """Draw fan charts: the past, the true values if known, the forecast, and both naive forecasts.

    Args:
        origins: one origin per series
        levels: the levels of the quantiles
        path: the path of the picture, PNG or SVG
    """
    from matplotlib.figure import Figure

    figure = Figure((9, 0.5 + 2.4 * len(origins)), layout="constrained")
    panels = figure.subplots(len(origins), 1, squeeze=False)[:, 0]
    for origin, axes in zip(origins, panels, strict=True):
        count = len(origin.forecast.values)
        past = origin.past[-4 * count :]
        times = origin.series.times(origin.start - len(past), origin.start + count)
        before, after = times[: len(past)], times[len(past) - 1 :]
        last = past[-1:]  # every line after the origin begins at this point
        axes.plot(before, past, color="black", linewidth=1.0, label="past")
        if origin.target:
            axes.plot(after, last + origin.target, color="black", linewidth=1.0, linestyle=":", label="actual values")
        axes.plot(after, last + origin.naive, color="tab:gray", linewidth=0.9, linestyle="--", label="last value")
        axes.plot(after, last + origin.seasonal, color="tab:green", linewidth=0.9, alpha=0.8, label="seasonal naive")
        axes.plot(after, last + origin.forecast.values, color="tab:blue", linewidth=1.4, label="model")
        if origin.forecast.quantiles:
            quantiles = np.array(origin.forecast.quantiles).T
            for k in range(len(levels) // 2):
                low, high = (np.concatenate([last, quantiles[row]]) for row in (k, len(levels) - 1 - k))
                label = f"{levels[len(levels) - 1 - k] - levels[k]:.0%} of the values"
                axes.fill_between(after, low, high, color="tab:blue", alpha=0.15 + 0.13 * k, linewidth=0, label=label)
        axes.set_title(origin.series.name or "series", fontsize=10, loc="left")
        axes.axvline(times[len(past) - 1], color="tab:gray", linewidth=0.6)
        axes.margins(x=0.01)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    save_figure(figure, path)
