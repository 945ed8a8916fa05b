"""Formats the scores of forecasts: tables with both naive forecasts, and a picture of the last windows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.forecasting.output import PICTURE, SHOWN, fan_picture
from glassgate.tasks.forecasting.windows import EncodedSeries
from glassgate.tasks.metrics.summary import Summary
from glassgate.tasks.pictures.charts import has_pictures

WHO = ("", "naive_", "seasonal_")
"""The prefix of a score's name: the model, the last value, and the value one season before."""

SCALED = ("mse", "mae", "mase", "rmsse", "wql", "coverage")
IN_UNITS = ("data_mae", "data_rmse", "mape", "smape")


class ForecastingSummary(Summary):
    """Tables of scores, and `forecasts.png`."""

    def brief(self, scores: Mapping[str, float]) -> dict[str, float]:
        left_out = (*WHO[1:], *IN_UNITS)
        return {name: value for name, value in scores.items() if not name.startswith(left_out)}

    def table(self, scores: Mapping[str, float]) -> str:
        return score_table(scores, self.task.options.levels)

    def write(self, encoded: Sequence[Encoded], folder: Path) -> list[Path]:
        if not isinstance(encoded, EncodedSeries) or not has_pictures():
            return []
        task = self.task
        size = task.context + task.options.horizon
        long = [each for each in encoded.examples if len(each) >= size][:SHOWN]
        origins = list(task.backtest([each.part(len(each) - size, len(each)) for each in long]))
        fan_picture(origins, task.options.levels, folder / PICTURE)
        return [folder / PICTURE]


def score_table(scores: Mapping[str, float], levels: Sequence[float]) -> str:
    """Return the scores as tables of the model and the naive forecasts, scaled and in the units of the data.

    A sentence below the table names each naive forecast that the model does not beat.

    Example:
        >>> print(score_table({"mse": 2.0, "naive_mse": 1.0, "seasonal_mse": 4.0, "mape": 0.25}, []))
                           mse
        model           2.0000
        last value      1.0000
        season before   4.0000
        The model does not beat the last value (mse 2.0000 vs. 1.0000): train longer, or forecast with it.
        <BLANKLINE>
        in the units of the data, and in percent
                          mape
        model           25.00%
        last value
        season before
    """
    lines = _rows(scores, SCALED)
    if "coverage" in scores:
        lines.append(f"coverage: of the interval that should hold {levels[-1] - levels[0]:.0%} of the values")
    first = "wql" if "wql" in scores else "mse"
    for who, title in list(_TITLES.items())[1:]:
        if who + first in scores and not scores[first] < scores[who + first]:
            lines.append(
                f"The model does not beat the {title} ({first} {scores[first]:.4f} vs. {scores[who + first]:.4f}): "
                "train longer, or forecast with it."
            )
    if not any(name in scores for name in IN_UNITS):
        return "\n".join(lines)
    return "\n".join([*lines, "", "in the units of the data, and in percent", *_rows(scores, IN_UNITS)])


_TITLES = dict(zip(WHO, ("model", "last value", "season before"), strict=True))


def _rows(scores: Mapping[str, float], names: Sequence[str]) -> list[str]:
    """A header, and a row for the model and for each naive forecast, with the scores that exist."""
    names = [name for name in names if name in scores]
    widths = [max(9, *(len(_cell(scores, who + name, name)) + 2 for who in WHO)) for name in names]
    lines = [" " * 13 + "".join(f"{n.removeprefix('data_'):>{width}}" for n, width in zip(names, widths, strict=True))]
    for who, title in _TITLES.items():
        cells = (f"{_cell(scores, who + n, n):>{width}}" for n, width in zip(names, widths, strict=True))
        lines.append(f"{title:13}{''.join(cells)}".rstrip())
    return lines


def _cell(scores: Mapping[str, float], key: str, name: str) -> str:
    if key not in scores:
        return ""
    if name in ("mape", "smape"):
        return f"{scores[key]:.2%}"
    return f"{scores[key]:.4g}" if name in IN_UNITS else f"{scores[key]:.4f}"
