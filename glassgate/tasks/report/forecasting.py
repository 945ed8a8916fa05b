"""Examples and answers of forecasting, for the report."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.series import Series, series_of
from glassgate.tasks.forecasting.network import Output, Recursive
from glassgate.tasks.forecasting.task import Forecasting
from glassgate.tasks.report.answers import AnswerGroup, BatchAnswers, LayerInput, number_answers
from glassgate.tasks.report.questions import Questions


class ForecastingQuestions(Questions[Forecasting]):
    """One number per step of the horizon."""

    def run(self, network: Any, batch: Batch) -> Any:
        return network.follow(batch) if isinstance(network, Recursive) else super().run(network, batch)

    def answers(self, output: Output, batch: Batch) -> BatchAnswers:
        """Return each step of the horizon; the recursive model forecasts it from the true values before it."""
        assert output.forecast is not None
        scale, shift = batch["scale"][:, None], batch["shift"][:, None]
        point = self.task.head.point(output.forecast, scale)
        target = batch["values"][:, -point.shape[1] :]
        predicted, actual = ((each * scale + shift)[0].tolist() for each in (point, target))
        options, count = self.task.options, len(predicted)
        first = options.steps_back - 1
        steps = range(first, first + count) if options.model == "recursive" else [None] * count
        answers = number_answers(predicted, actual, steps)
        group = AnswerGroup.of_losses(
            (point - target).abs() * scale, (point - target.roll(target.shape[1] // 2, 1)).abs() * scale
        )
        score = "forecast, in standard deviations of the training data"
        return BatchAnswers(answers, point, "the forecast", (group,), point, "in the series' own units", score)

    def steps(self, example: Series) -> Sequence[str]:
        return [str(step) for step in range(1, len(example) + 1)]

    def series(self, example: Series) -> np.ndarray | None:
        return np.asarray(example.values[0 : len(example)], dtype=float).reshape(len(example), -1)

    def with_series(self, example: Series, stop: int, rows: Sequence[Sequence[float]]) -> Series:
        """Return a series with another look-back before the horizon that ends at `stop`."""
        values = np.array(example.values[0 : len(example)], dtype=float)
        origin = stop - self.task.options.horizon
        values[origin - len(rows) : origin] = [row[0] for row in rows]
        return replace(example, values=series_of(values).values)

    def excerpt(self, example: Series, usual: tuple[int, int]) -> tuple[int, int]:
        return max(0, len(example) - self.task.context - self.task.options.horizon), len(example)

    def shown(self, example: Series, start: int, stop: int) -> LayerInput:
        """Return the input of the layers, by model.

        Direct: the look-back window. Segments: the same, with one step per segment. Recursive: the look-back window and
        the true values up to the last but one step of the horizon.
        """
        options = self.task.options
        origin = stop - options.horizon
        end = stop - 1 if options.model == "recursive" else origin
        start = origin - options.steps_back
        every = super().shown(example, start, end)
        stamps = example.frequency.times(example.start, np.arange(start, stop))
        times = [example.frequency.text(each) for each in stamps] if example.frequency.dated else []
        every = every._replace(names=[example.name or options.target or "the series"], times=times)
        if options.model != "segments":
            return every
        firsts, size = range(0, len(every.steps), options.segment), options.segment
        words = [f"{every.steps[first]} to {every.steps[first + size - 1]}" for first in firsts]
        return every._replace(steps=words, rows_per_step=size)
