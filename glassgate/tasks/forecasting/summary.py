"""Tables that compare the scores of a model with two naive forecasts, and a picture of the last windows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.corpus import Corpus
from glassgate.tasks.forecasting.output import MAX_DRAWN, PICTURE, fan_picture
from glassgate.tasks.metrics.summary import Summary
from glassgate.tasks.pictures.charts import has_matplotlib

PREFIXES = ("", "naive_", "seasonal_")
"""The prefixes of score names for the model, the naive forecast and the seasonal naive forecast."""

SCALED_SCORES = ("mse", "mae", "mase", "rmsse", "wql", "coverage")
DATA_SCORES = ("data_mae", "data_rmse", "mape", "smape")
"""Scores in the units of the data, and in percent."""


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
        task = self.task
        size = task.context + task.options.horizon
        drawn = [each for each in encoded.examples if len(each) >= size][:MAX_DRAWN]
        origins = list(task.backtest([each.part(len(each) - size, len(each)) for each in drawn]))
        fan_picture(origins, task.options.levels, folder / PICTURE)
        return [folder / PICTURE]


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
    lines = _rows(scores, SCALED_SCORES)
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


_TITLES = dict(zip(PREFIXES, ("model", "last value", "seasonal naive"), strict=True))
_TITLE_WIDTH = max(map(len, _TITLES.values()))


def _rows(scores: Mapping[str, float], names: Sequence[str]) -> list[str]:
    """A header, and a row for the model and for each naive forecast, with the scores that exist."""
    names = [name for name in names if name in scores]
    widths = [max(9, *(len(_cell(scores, prefix + name, name)) + 2 for prefix in PREFIXES)) for name in names]
    lines = [
        " " * _TITLE_WIDTH
        + "".join(f"{n.removeprefix('data_'):>{width}}" for n, width in zip(names, widths, strict=True))
    ]
    for prefix, title in _TITLES.items():
        cells = (f"{_cell(scores, prefix + n, n):>{width}}" for n, width in zip(names, widths, strict=True))
        lines.append(f"{title:{_TITLE_WIDTH}}{''.join(cells)}".rstrip())
    return lines


def _cell(scores: Mapping[str, float], key: str, name: str) -> str:
    if key not in scores:
        return ""
    if name in ("mape", "smape"):
        return f"{scores[key]:.2%}"
    return f"{scores[key]:.4g}" if name in DATA_SCORES else f"{scores[key]:.4f}"
