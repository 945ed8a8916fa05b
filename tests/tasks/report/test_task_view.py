"""The report's view of a task: texts become examples, tasks without a view are refused, answers name their choices."""

import pytest
import torch

import glassgate as gg
from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.data.vocabulary import Vocabulary
from glassgate.tasks.errors import UserError
from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.forecasting.task import Forecasting
from glassgate.tasks.language_model.music import parse_roll
from glassgate.tasks.regression import Regression
from glassgate.tasks.report.study import study
from glassgate.tasks.report.task_view import answers_of, view_of
from tests.tasks.live.runs import excerpts, trained


class Rating(Regression):
    name = "rating"


def test_a_task_without_a_view_is_refused() -> None:
    class Other:
        name = "other"

    with pytest.raises(UserError, match="report: the task other has no report yet"):
        view_of(Other())  # type: ignore[arg-type]


def test_a_task_that_reads_no_text_is_refused() -> None:
    with pytest.raises(
        UserError, match="text: expected lines of MIDI numbers from 21 to 108, or - for silence, got '7' in line 2"
    ):
        parse_roll("60 64\n7")
    with pytest.raises(UserError, match="report: a run of forecasting does not read text; give a file with --file"):
        view_of(Forecasting(ForecastingOptions())).example("1 2 3")


def test_a_text_becomes_steps() -> None:
    task = Classification(ClassificationOptions())
    task.vocabularies = {"units": Vocabulary(["a", "fine", "day"]), "labels": Vocabulary(["good", "bad"])}
    view = view_of(task)
    assert view.steps(view.example("a fine day")) == ["a", "fine", "day"]
    assert view.layer_input(view.example("a fine day"), 1, 3).steps == ["fine", "day"]


def test_answers_name_prediction_and_target() -> None:
    logs = torch.tensor([[[0.7, 0.2, 0.1]], [[0.1, 0.1, 0.8]]]).log()
    view = answers_of(logs, ["x", "y", "z"], torch.tensor([[1], [2]]), [None])
    (answer,) = view.answers
    assert [choice.name for choice in answer.best] == ["x", "y", "z"]
    assert answer.target is not None
    assert (answer.target.name, round(answer.target.probability or 0, 3)) == ("y", 0.2)
    torch.testing.assert_close(view.evidence.exp(), torch.tensor([[0.2], [0.8]]))


def test_the_targets_of_a_forecast_are_the_values_of_the_series() -> None:
    """A value of 0 is not shown as the rounding error of float32 that scaling leaves."""
    torch.manual_seed(1)
    with gg.engine("reference"):
        task = trained("forecasting, segments")
        made = study(task, excerpts(task), "x")
    targets = [answer.target for passage in made.passages for answer in passage.answers]
    assert [each.name for each in targets if each is not None] == ["0", "3", "6", "9"]
