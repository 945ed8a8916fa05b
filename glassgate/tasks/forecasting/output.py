"""Forecasts as rows, data frames and pictures, and their scores as tables."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.corpus import Corpus
from glassgate.tasks.forecasting.series import Series, with_zone
from glassgate.tasks.metrics.summary import Summary
from glassgate.tasks.pictures.charts import has_matplotlib, save_figure

MAX_DRAWN = 4
"""The maximum number of series in a picture."""
PREFIXES = ("", "naive_", "seasonal_")
"""The prefixes of score names for the model, the naive forecast and the seasonal naive forecast."""
DATA_SCORES = ("data_mae", "data_rmse", "mape", "smape")
"""Scores in the units of the data, and in percent."""
_SCALED_SCORES = ("mse", "mae", "mase", "rmsse", "wql", "coverage")
_TITLES = dict(zip(PREFIXES, ("model", "last value", "seasonal naive"), strict=True))
_TITLE_WIDTH = max(map(len, _TITLES.values()))


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

    @property
    def times(self) -> np.ndarray:
        """The time stamps of the forecast steps."""
        return self.series.times(self.start, self.start + len(self.forecast.values))

    @property
    def columns(self) -> list[np.ndarray]:
        """The forecast values, and the values of each quantile."""
        return [np.array(self.forecast.values), *np.array(self.forecast.quantiles or []).T]


def header(origins: Sequence[OriginForecast], levels: Sequence[float]) -> list[str]:
    """Return the names of the columns of `rows`."""
    shown_levels = levels if origins[0].forecast.quantiles else ()
    return [*origins[0].series.columns, "forecast", *(f"q{level:g}" for level in shown_levels)]


def rows(series: Series, start: int, forecast: Forecast) -> Iterator[list[str]]:
    """Yield a row for each step from `start` on: the name of the series, the time stamp, value and quantiles."""
    times = series.times(start, start + len(forecast.values))
    for k, (time, value) in enumerate(zip(times, forecast.values, strict=True)):
        quantiles = forecast.quantiles[k] if forecast.quantiles else []
        yield [series.name, series.frequency.text(time), *(f"{each:.6g}" for each in (value, *quantiles))]


def long_frame(origins: Sequence[OriginForecast], levels: Sequence[float]) -> pd.DataFrame:
    """Return a frame with a row for each forecast step, and the columns of `header`."""
    blocks = [[np.repeat(each.series.name, len(each.times)), each.times, *each.columns] for each in origins]
    columns: list[Any] = [np.concatenate(column) for column in zip(*blocks, strict=True)]
    columns[1] = with_zone(columns[1], origins[0].series.frequency)
    return pd.DataFrame(dict(zip(header(origins, levels), columns, strict=True)))


def wide_frame(origins: Sequence[OriginForecast], levels: Sequence[float]) -> pd.DataFrame:
    """Return a frame with a column of time stamps, and for each series its forecast and quantiles as columns.

    The columns of quantiles are named as in darts, "load_q0.100". If a series ends before others, its missing forecasts
    are NaN.
    """
    times = np.unique(np.concatenate([each.times for each in origins]))
    columns: dict[str, Any] = {origins[0].series.columns[1]: with_zone(times, origins[0].series.frequency)}
    for origin in origins:
        name, places = origin.series.name, np.searchsorted(times, origin.times)
        for suffix, values in zip(["", *(f"_q{level:.3f}" for level in levels)], origin.columns, strict=False):
            columns[name + suffix] = np.full(len(times), np.nan)
            columns[name + suffix][places] = values
    return pd.DataFrame(columns)


def fan_picture(origins: Sequence[OriginForecast], levels: Sequence[float], path: Path) -> None:
    """Draw the past, the true values if known, the forecast, and both naive forecasts, to a PNG or SVG file.

    Each of the first `MAX_DRAWN` origins has a panel.
    """
    from matplotlib.figure import Figure

    origins = origins[:MAX_DRAWN]
    figure = Figure((9, 0.5 + 2.4 * len(origins)), layout="constrained")
    panels = figure.subplots(len(origins), 1, squeeze=False)[:, 0]
    for origin, axes in zip(origins, panels, strict=True):
        count = len(origin.forecast.values)
        past = origin.past[-4 * count :]
        times = origin.series.times(origin.start - len(past), origin.start + count)
        last = past[-1:]  # every line after the origin begins at this point
        before, after = times[: len(past)], times[len(past) - 1 :]
        lines = {
            "actual values": (origin.target, {"color": "black", "linewidth": 1.0, "linestyle": ":"}),
            "last value": (origin.naive, {"color": "tab:gray", "linewidth": 0.9, "linestyle": "--"}),
            "seasonal naive": (origin.seasonal, {"color": "tab:green", "linewidth": 0.9, "alpha": 0.8}),
            "model": (origin.forecast.values, {"color": "tab:blue", "linewidth": 1.4}),
        }
        axes.plot(before, past, color="black", linewidth=1.0, label="past")
        for label, (values, style) in lines.items():
            if values:
                axes.plot(after, last + values, label=label, **style)
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


class ForecastingSummary(Summary):
    """Tables of scores, and `forecasts.png`."""

    def epoch_scores(self, scores: Mapping[str, float]) -> dict[str, float]:
        omitted = (*PREFIXES[1:], *DATA_SCORES)
        return {name: value for name, value in scores.items() if not name.startswith(omitted)}

    def table(self, scores: Mapping[str, float]) -> str:
        return score_table(scores, self.task.options.levels)

    def write(self, encoded: Sequence[Encoded], folder: Path) -> list[Path]:
        if not isinstance(encoded, Corpus) or not has_matplotlib():
            return []
        task, path = self.task, folder / "forecasts.png"
        size = task.context + task.options.horizon
        drawn = [each for each in encoded.examples if len(each) >= size][:MAX_DRAWN]
        origins = list(task.backtest([each.part(len(each) - size, len(each)) for each in drawn]))
        fan_picture(origins, task.options.levels, path)
        return [path]


def score_table(scores: Mapping[str, float], levels: Sequence[float]) -> str:
    """Return tables that compare the model with the naive forecasts: scaled scores, and scores in the data's units.

    A sentence below the table names each naive forecast that the model does not beat.

    Example:
        >>> print(score_table({"mse": 2.0, "naive_mse": 1.0, "seasonal_mse": 4.0, "mape": 0.25}, []))
                            mse
        model            2.0000
        last value       1.0000
        seasonal naive   4.0000
        The model does not beat the last value forecast (mse 2.0000 vs. 1.0000): train longer, or use that one.
        <BLANKLINE>
        in the units of the data, and in percent
                           mape
        model            25.00%
        last value
        seasonal naive
    """
    lines = _rows(scores, _SCALED_SCORES)
    if "coverage" in scores:
        lines.append(f"coverage: of the interval that should hold {levels[-1] - levels[0]:.0%} of the values")
    score = "wql" if "wql" in scores else "mse"
    for prefix, title in list(_TITLES.items())[1:]:
        if prefix + score in scores and not scores[score] < scores[prefix + score]:
            comparison = f"{score} {scores[score]:.4f} vs. {scores[prefix + score]:.4f}"
            lines.append(f"The model does not beat the {title} forecast ({comparison}): train longer, or use that one.")
    if not any(name in scores for name in DATA_SCORES):
        return "\n".join(lines)
    return "\n".join([*lines, "", "in the units of the data, and in percent", *_rows(scores, DATA_SCORES)])


def _rows(scores: Mapping[str, float], names: Sequence[str]) -> list[str]:
    """A header, and a row for the model and for each naive forecast, with the scores that exist."""
    columns = []
    for name in names:
        if name in scores:
            form = ".2%" if name in ("mape", "smape") else ".4g" if name in DATA_SCORES else ".4f"
            cells = [format(scores[prefix + name], form) if prefix + name in scores else "" for prefix in PREFIXES]
            width = max(9, *(len(cell) + 2 for cell in cells))
            columns.append([f"{cell:>{width}}" for cell in (name.removeprefix("data_"), *cells)])
    titles = [f"{title:{_TITLE_WIDTH}}" for title in ("", *_TITLES.values())]
    return ["".join(row).rstrip() for row in zip(titles, *columns, strict=True)]
