"""The forecasting task: series, training, scores and forecasts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.data.batches import Batch, Encoded, lengths
from glassgate.tasks.data.held_out import Rule
from glassgate.tasks.data.reading import Reading
from glassgate.tasks.data.toy.generated import hourly_series
from glassgate.tasks.errors import OptionError
from glassgate.tasks.forecasting import ridge
from glassgate.tasks.forecasting.heads import SharedDraws, make_head
from glassgate.tasks.forecasting.network import Direct, Forecaster, Output, Sizes, network
from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.forecasting.output import (
    Forecast,
    ForecastingSummary,
    OriginForecast,
    long_frame,
    rows,
    wide_frame,
)
from glassgate.tasks.forecasting.series import (
    Frame,
    Series,
    has_time_index,
    infer_frequency,
    read_series,
    reading_of,
    series_of,
)
from glassgate.tasks.forecasting.statistics import TrainingStatistics, learn
from glassgate.tasks.forecasting.windows import LastHorizons, WindowBatching, Windows, check_length, naive_forecasts
from glassgate.tasks.loss import Loss, Mean
from glassgate.tasks.predictions import Record
from glassgate.tasks.progress import Progress
from glassgate.tasks.task import Split, Task, Vocabularies

if TYPE_CHECKING:
    from torchmetrics import MetricCollection


class Forecasting(Task[ForecastingOptions, Series, list[Forecast]]):
    """Forecast the next steps of series. A prediction is the forecast from the end of a series.

    Example:
        >>> series = series_of(np.sin(np.arange(200) / 3), "wave")
        >>> task = Forecasting(ForecastingOptions(horizon=3, hidden_size=8, epochs=3, learning_rate=0.03))
        >>> _ = task.fit(task.split([series]))
        >>> len(task.predict([series])[0][0].values)
        3
    """

    name = "forecasting"
    purpose = "forecast the next steps of series of numbers"
    options_type = ForecastingOptions
    lower_is_better = True
    summary_type = ForecastingSummary
    try_next = ("forecast {run} -o forecast.csv", "evaluate {run} {file}")
    builtin_try_next = ("forecast {run} -o forecast.csv",)
    padding = {"values": 0, "known": 0, "past": 0, "series": 0, "shift": 0, "scale": 1, "naive_mae": 1, "naive_mse": 1}
    builtin_data = "a generated series"
    builtin_options = {
        "head": "quantiles",
        "normalize": "window",
        "calendar": True,
        "hidden_size": 32,
        "dropout": 0.2,
        "epochs": 6,
        "batch_size": 64,
    }

    def __init__(self, options: ForecastingOptions):
        super().__init__(options)
        self.head = make_head(options.head, options.levels)
        self._statistics: TrainingStatistics | None = None

    @property
    def monitor(self) -> str:
        if self.head.has_quantiles:
            return "wql"
        return "mse" if self.options.head == "mse" else "mae"

    @property
    def statistics(self) -> TrainingStatistics:
        """The statistics of the training data, for example scales and the season."""
        if self._statistics is None or self._statistics.fitted is not self.fitted:
            self._statistics = TrainingStatistics(self.options, self.fitted)
        return self._statistics

    @property
    def context(self) -> int:
        """The maximum number of steps that the network and the seasonal naive forecast read before an origin."""
        return max(self.options.steps_back, self.statistics.season)

    def examine(self, path: str | Path) -> Reading:
        return reading_of(path, self.options.schema)

    def read(
        self, path: "str | Path | Frame", labelled: bool = True, progress: Progress | None = None
    ) -> Sequence[Series]:
        """Read the series of a file or a frame. If `labelled` is set, each must contain a horizon of true values."""
        all_series = read_series(path, self.options.schema, progress, self.reading)
        min_context, reason = self.options.steps_back, ""
        if self.fitted and labelled and self.context > min_context:
            min_context = self.context
            reason = f"; the seasonal naive forecast reads a season of {self.statistics.season} steps"
        for series in all_series:
            check_length(series, min_context + (self.options.horizon if labelled else 0), self.options, reason)
        return all_series

    def read_builtin(self) -> Split[Series]:
        options = self.options
        if options.target or options.past or options.known or options.static:
            raise OptionError("target, past, known, static: these name columns of a table; give a table with --data")
        return self.split(self.read_for_forecast(None))

    def read_for_forecast(self, path: str | None, progress: Progress | None = None) -> Sequence[Series]:
        """Read the series of a file, to forecast from their ends. None reads the series that the run was trained on."""
        if path or self.options.data:
            return self.read(path or str(self.options.data), labelled=False, progress=progress)
        times, values = hourly_series()
        return [series_of(values, "generated", times[0], infer_frequency(times))]

    @property
    def held_out_rule(self) -> Rule[Series]:
        return LastHorizons(self.options)

    def split_of(self, data: Any) -> Split[Series]:
        """Split the series of a table in time, or read a mapping from "train", "dev" and "test" to tables."""
        if isinstance(data, Split):
            return data
        if isinstance(data, Mapping):
            return Split(**{part: self.read(each) for part, each in data.items()})
        return self.split(self.read(data))

    def batching(self) -> WindowBatching:
        return WindowBatching(self.options, self.context if self.fitted else 0)

    def collect(self, examples: Sequence[Series]) -> Vocabularies:
        """Compute the statistics of the training series (see `learn`). Series need no vocabulary."""
        options = self.options
        for series in examples:
            check_length(series, options.steps_back + options.horizon, options)
        if options.model == "segments" and len(examples) > 1 and options.embedding_size >= options.hidden_size:
            raise OptionError(
                f"embedding_size: expected less than hidden_size = {options.hidden_size}, because the segments model "
                "concatenates the embedding of a series and that of a segment's position to a vector of hidden_size, "
                f"got {options.embedding_size}"
            )
        self.fitted = learn(examples, options)
        return {}

    def build(self) -> Forecaster:
        sizes = Sizes(self.statistics.num_known, len(self.fitted["past"]), len(self.fitted["series"]))
        return network(self.options, sizes, self.head)

    def refine(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> str:
        """Average the trained network with a ridge regression, by the share of `share_of_network`."""
        network = self.network
        if not (isinstance(network, Direct) and network.linear is not None and self.options.ridge):
            return ""
        if not (len(dev) and self.head.locations):
            return ""
        fitted = ridge.fit(*(ridge.windows_of(network, part, self.padding) for part in (train, dev)))
        share = ridge.share_of_network(network, fitted, dev, self.padding)
        network.blend(fitted, share)
        if share == 0:
            return (
                "forecasts are those of a ridge regression, because the dev data does not show that the network "
                "improves them; --no-ridge uses the network"
            )
        return f"forecasts are {share:.0%} of the network and {1 - share:.0%} of a ridge regression (--no-ridge)"

    def encode(self, example: Series) -> Encoded:
        return self.statistics.encode(example)

    def loss(self, output: Output, batch: Batch) -> Loss:
        target = batch["values"][:, -output.parameters.shape[1] :]
        return [Mean.of(self.head.loss(output.parameters, target, batch["scale"][:, None]))]

    def metrics(self) -> "MetricCollection":
        from torchmetrics import MetricCollection

        from glassgate.tasks.forecasting.scores import ForecastScores

        return MetricCollection([ForecastScores(self.options.levels if self.head.has_quantiles else ())])

    def observe(self, output: Output, batch: Batch) -> dict[str, Tensor]:
        values, horizon = batch["values"], self.options.horizon
        preds, quantiles = self._point_and_quantiles(output, batch)
        forecasts = torch.stack([preds, *naive_forecasts(values, horizon, self.statistics.season)])
        observed = {name: batch[name] for name in ("shift", "scale", "naive_mae", "naive_mse")}
        observed |= {"forecasts": forecasts, "target": values[:, -horizon:]}
        return observed if quantiles is None else observed | {"quantiles": quantiles}

    def decode(self, output: Output, batch: Batch) -> list[list[Forecast]]:
        shift, scale = batch["shift"][:, None], batch["scale"][:, None]
        preds, quantiles = self._point_and_quantiles(output, batch)
        values = (preds * scale + shift).tolist()
        if quantiles is None:
            return [[Forecast(row, None)] for row in values]
        quantile_lists = (quantiles * scale[..., None] + shift[..., None]).tolist()
        return [[Forecast(*row)] for row in zip(values, quantile_lists, strict=True)]

    def baselines(self) -> Sequence[Baseline]:
        return [ridge.RidgeOnLookBack(self)]

    def predict(self, examples: Sequence[Series]) -> list[list[Forecast]]:
        """Return for each series a list of one forecast, from the end of the series."""
        return [[each.forecast] for each in self.forecast_from_end(examples)]

    def forecast_from_end(self, examples: Sequence[Series]) -> Iterator[OriginForecast]:
        """Yield the forecast of the steps after the last value of each series."""
        back, horizon, season = self.options.steps_back, self.options.horizon, self.statistics.season
        for series in examples:
            check_length(series, back, self.options)
        encoded = [self.statistics.encode(each.part(len(each) - back, len(each)), horizon) for each in examples]
        batches = Windows(lengths(encoded), back + horizon, self.batching().rows)
        task = self.frozen()
        for output, batch, pieces in task.outputs(encoded, batches):
            for piece, (forecast,) in zip(pieces, self.decode(output, batch), strict=True):
                series = examples[piece.index]
                past = series.values[len(series) - max(back, min(season, len(series))) : len(series)]
                naive = [float(past[-1])] * horizon
                seasonal = np.resize(past[-season:], horizon).tolist()
                yield OriginForecast(series, len(series), forecast, past[-back:].tolist(), [], naive, seasonal)

    def backtest(self, examples: Sequence[Series], every: int | None = None) -> Iterator[OriginForecast]:
        """Yield forecasts from origins inside series. A context precedes each origin, and a horizon follows it.

        Args:
            examples: the series
            every: steps from one origin to the next; None for the task's option `every`
        """
        encoded, horizon, back = self.encoded(examples), self.options.horizon, self.options.steps_back
        batches = Windows(lengths(encoded), self.context + horizon, self.batching().rows, every or self.options.every)
        task = self.frozen()
        for output, batch, pieces in task.outputs(encoded, batches):
            shift, scale, values = batch["shift"][:, None], batch["scale"][:, None], batch["values"]
            naive, seasonal = naive_forecasts(values, horizon, self.statistics.season)
            past, target = values[:, -back - horizon : -horizon], values[:, -horizon:]
            unscaled = [(each * scale + shift).tolist() for each in (past, target, naive, seasonal)]
            for piece, (forecast,), *columns in zip(pieces, self.decode(output, batch), *unscaled, strict=True):
                yield OriginForecast(examples[piece.index], piece.stop - horizon, forecast, *columns)

    def forecast(self, source: "str | Path | Frame") -> Any:
        """Return the forecast from the end of each series of a table, in the layout of the table.

        Args:
            source: a file, a frame of pandas, polars or Arrow, or a `TimeSeries` of darts, with the same columns as in
                training

        Returns:
            a pandas frame. For a long table: the names of the series, the time stamps, "forecast", and a column for
            each quantile. For a wide table: the time stamps (as the index if `source` has them there) and a column for
            each series, followed by its quantiles
        """
        origins = list(self.forecast_from_end(self.read(source, labelled=False)))
        if origins[0].series.is_long:
            return long_frame(origins, self.options.levels)
        frame = wide_frame(origins, self.options.levels)
        return frame.set_index(frame.columns[0]) if has_time_index(source) else frame

    def text(self, example: Series, prediction: list[Forecast]) -> str:
        """Return a line for each step: series, time, value and quantiles."""
        return "\n".join("\t".join(map(str, row)) for row in rows(example, len(example), prediction[0]))

    def record(self, example: Series, prediction: list[Forecast]) -> Record:
        """Return the series and, for each step, its time, value and quantiles."""
        (forecast,), start = prediction, len(example)
        times = example.times(start, start + len(forecast.values))
        steps: list[Record] = [
            {"time": example.frequency.text(time), "value": value}
            for time, value in zip(times, forecast.values, strict=True)
        ]
        for step, quantiles in zip(steps, forecast.quantiles or (), strict=False):
            step["quantiles"] = dict(zip(map(str, self.options.levels), quantiles, strict=True))
        return {"series": example.name, "steps": steps}

    def _point_and_quantiles(self, output: Output, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The point forecasts, `(N, horizon)`, and quantiles, `(N, horizon, Q)`; no quantiles if the head has none."""
        levels, scale, paths = self.options.levels, batch["scale"][:, None], output.paths
        if output.forecast is not None:
            preds = self.head.point(output.forecast, scale)
            if not self.head.has_quantiles:
                return preds, None
            quantiles = self.head.quantiles(output.forecast, levels)
            if quantiles is not None:
                return preds, quantiles
            parameters = output.forecast[:, None].expand(-1, self.options.samples, -1, -1)
            draws = SharedDraws(len(preds), self.options.seed, preds.device)
            paths = self.head.sample(parameters, scale[:, None], draws)
        else:
            assert paths is not None
            preds = paths.mean(1)
        level_tensor = torch.tensor(levels, dtype=paths.dtype, device=paths.device)
        return preds, paths.quantile(level_tensor, 1).permute(1, 2, 0)
