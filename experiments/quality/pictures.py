"""Pictures of attention and forecasts of trained models, drawn from values that are stored with the results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.tasks.forecasting.output import Forecast, OriginForecast, fan_picture
from glassgate.tasks.forecasting.series import Frequency, series_of
from glassgate.tasks.pictures.attention import AttentionWeights, attention_picture
from glassgate.tasks.task import Split

TITLES = {
    "attention": "Attention weights: a row for each token of the translation, a column for each token of the source",
    "fan": "Forecasts of the test part with their quantiles, the actual values, and two naive forecasts",
}
_SENTENCES, _ORIGINS = 3, 3
"""The number of sentences of a picture of attention, and of forecasts in a picture of forecasts."""
_BYTES = range(16, 33)
"""The lengths in bytes of sentences that fit a page."""


def picture_values(kind: str, task: Any, split: Split[Any]) -> dict[str, Any]:
    """Return the values of a picture as JSON values.

    Args:
        kind: "attention" for translation, or "fan" for forecasting
        task: the trained task
        split: the data; only its test part is used
    """
    return {"kind": kind, "shown": (_attended if kind == "attention" else _forecast)(task, split.test)}


def draw(picture: Mapping[str, Any], path: Path) -> None:
    """Draw the picture of stored values as SVG."""
    if picture["kind"] == "attention":
        attended = [AttentionWeights(s["source"], s["target"], _rows(s["weights"])) for s in picture["shown"]]
        path.write_text(attention_picture(*attended), "utf-8")
    else:
        fan_picture([_origin(values) for values in picture["shown"]], picture["shown"][0]["levels"], path)


def _attended(task: Any, test: Sequence[Any]) -> list[dict[str, Any]]:
    """Return source, translation and attention weights of the first sentences that fit a page."""
    first = [pair.source for pair in test if len(pair.source.encode()) in _BYTES]
    attended = [task.attend(type(test[0])(source)) for source in first[:_SENTENCES]]
    return [
        {"source": list(sentence.source), "target": list(sentence.target), "weights": _texts(sentence.weights, ".3f")}
        for sentence in attended
    ]


def _forecast(task: Any, test: Sequence[Any]) -> list[dict[str, Any]]:
    """Return forecasts from origins that are evenly distributed over the first series of the test part."""
    series = test[0]
    size = task.context + task.options.horizon
    starts = np.linspace(0, len(series) - size, _ORIGINS + 2).astype(int)[1:-1]
    forecasts = []
    for origin in task.backtest([series.part(start, start + size) for start in starts]):
        first = origin.start - len(origin.past)
        lines = {"past": origin.past, "target": origin.target, "naive": origin.naive, "seasonal": origin.seasonal}
        lines["values"] = origin.forecast.values
        forecasts.append(
            {
                "name": origin.series.name,
                "start": str(origin.series.times(first, first + 1)[0]),
                "frequency": asdict(origin.series.frequency),
                "levels": task.options.levels if origin.forecast.quantiles else [],
                **{name: _texts([line], ".4g")[0] for name, line in lines.items()},
                "quantiles": _texts(np.transpose(origin.forecast.quantiles or []), ".4g"),
            }
        )
    return forecasts


def _origin(stored: Mapping[str, Any]) -> OriginForecast:
    lines = {name: _rows([stored[name]])[0].tolist() for name in ("past", "target", "naive", "seasonal", "values")}
    start = np.datetime64(stored["start"], "us")
    series = series_of(np.array(lines["past"]), stored["name"], start, Frequency(**stored["frequency"]))
    quantiles = _rows(stored["quantiles"]).T.tolist() if stored["quantiles"] else None
    forecast = Forecast(lines["values"], quantiles)
    return OriginForecast(
        series, len(series), forecast, *(lines[name] for name in ("past", "target", "naive", "seasonal"))
    )


def _texts(rows: Iterable[Iterable[float]], form: str) -> list[str]:
    """Return each row of numbers as text."""
    return [" ".join(format(value, form) for value in row) for row in rows]


def _rows(texts: Sequence[str]) -> np.ndarray:
    return np.array([text.split() for text in texts], float)
