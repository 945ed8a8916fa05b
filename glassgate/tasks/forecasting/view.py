"""Examples and answers of forecasting, for the report."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glassgate.glass.languages import say
from glassgate.glass.study import Passage
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.forecasting.network import Output, Recursive
from glassgate.tasks.forecasting.series import Series, series_of
from glassgate.tasks.forecasting.task import Forecasting
from glassgate.tasks.report.task_view import AnswerGroup, BatchAnswers, TaskView, number_answers


class View(TaskView[Forecasting]):
    """Shows one forecast per step of the horizon."""

    def run(self, network: Any, batch: Batch) -> Any:
        return (network.forecast_from_true_values if isinstance(network, Recursive) else network)(batch)

    def answers(self, output: Output, batch: Batch) -> BatchAnswers:
        """Return an answer per step of the horizon. The recursive model reads the true values before each step."""
        assert output.forecast is not None
        scale, shift = batch["scale"][:, None], batch["shift"][:, None]
        point = self.task.head.point(output.forecast, scale)
        target = batch["values"][:, -point.shape[1] :]
        rounding = 1e-6 * (scale.abs() + shift.abs())
        numbers = (each * scale + shift for each in (point, target))
        predicted, actual = (each.where(~(each.abs() < rounding), 0.0)[0].tolist() for each in numbers)
        options, count = self.task.options, len(predicted)
        first_step = options.steps_back - 1
        steps = range(first_step, first_step + count) if options.model == "recursive" else [None] * count
        answers = number_answers(predicted, actual, steps)
        other_target = target.roll(target.shape[1] // 2, 1)
        group = AnswerGroup.of_losses((point - target).abs() * scale, (point - other_target).abs() * scale)
        name, unit = say("quantity.forecast"), say("quantity.series_units")
        return BatchAnswers(answers, point, name, (group,), point, unit, say("quantity.forecast_in_deviations"))

    def steps(self, example: Series) -> Sequence[str]:
        return [str(step) for step in range(1, len(example) + 1)]

    def series(self, example: Series) -> np.ndarray | None:
        return np.asarray(example.values[0 : len(example)], dtype=float).reshape(len(example), -1)

    def with_series(self, example: Series, stop: int, rows: Sequence[Sequence[float]]) -> Series:
        """Return a copy of a series, with `rows` as the values before the horizon that ends at `stop`."""
        values = np.array(example.values[0 : len(example)], dtype=float)
        origin = stop - self.task.options.horizon
        values[origin - len(rows) : origin] = [row[0] for row in rows]
        return replace(example, values=series_of(values).values)

    def excerpt(self, example: Series, default: tuple[int, int]) -> tuple[int, int]:
        return max(0, len(example) - self.task.context - self.task.options.horizon), len(example)

    def layer_input(self, example: Series, start: int, stop: int) -> Passage:
        """Return the input of the layers, which depends on the model.

        - direct: the look-back window
        - segments: the look-back window, with one step per segment
        - recursive: the look-back window, and the true values of the horizon except the last one
        """
        options = self.task.options
        origin = stop - options.horizon
        end = stop - 1 if options.model == "recursive" else origin
        window_start = origin - options.steps_back
        input = super().layer_input(example, window_start, end)
        stamps = example.frequency.times(example.start, np.arange(window_start, stop))
        times = [example.frequency.text(each) for each in stamps] if example.frequency.has_dates else []
        input = replace(input, names=[example.name or options.target or say("series.the_series")], times=times)
        if options.model != "segments":
            return input
        length = options.segment
        starts = range(0, len(input.steps), length)
        segments = [
            say("words.range", low=input.steps[first], high=input.steps[first + length - 1]) for first in starts
        ]
        return replace(input, steps=segments, rows_per_step=length)
