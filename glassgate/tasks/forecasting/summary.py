"""How the scores of forecasts are shown: tables with the naive forecasts, and a picture of the last windows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.forecasting.output import PICTURE, SHOWN, fan_picture
from glassgate.tasks.forecasting.scores import IN_UNITS, WHO, score_table
from glassgate.tasks.forecasting.windows import EncodedSeries
from glassgate.tasks.metrics.summary import Summary
from glassgate.tasks.pictures.charts import has_pictures


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
