"""The report's queries to a task, about its examples and answers. Each task implements them in a file of its own."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from torch import nn

from glassgate.tasks.data.batches import Batch
from glassgate.tasks.errors import UserError
from glassgate.tasks.report.answers import Seen, Shown
from glassgate.tasks.task import Task

TaskType = TypeVar("TaskType", bound=Task[Any, Any, Any])

_QUESTIONS = {
    "tagging": "TaggingQuestions",
    "classification": "ClassificationQuestions",
    "language-model": "LanguageModelQuestions",
    "fill-blanks": "FillBlanksQuestions",
    "translation": "TranslationQuestions",
    "forecasting": "ForecastingQuestions",
    "regression": "RegressionQuestions",
}


class Questions(Generic[TaskType]):
    """The queries of the report. Each task has a subclass that implements them.

    Args:
        task: the task, with its network

    Attributes:
        uses_own_prediction: whether `example` takes the run's own prediction as the reference answer
    """

    uses_own_prediction: ClassVar[bool] = False

    def __init__(self, task: TaskType):
        self.task = task

    def example(self, text: str) -> Any:
        """Return the example of a text.

        Raises:
            UserError: the task does not read text
        """
        raise UserError(
            f"report: a run of {self.task.name} does not read text; give a file with --file, or omit the text"
        )

    def run(self, network: nn.Module, batch: Batch) -> Any:
        """Run a network so that the first call of its layer `encoder` reads the shown steps."""
        return network(batch)

    def answers(self, output: Any, batch: Batch) -> Seen:
        """Return the answers for a batch of equal rows."""
        raise NotImplementedError

    def attention(self, example: Any) -> np.ndarray | None:
        """Return the attention of each answer, `(A, L)`; None for a network without attention."""
        return None

    def steps(self, example: Any) -> Sequence[str]:
        """Return the input of each step of the recurrent layers as text."""
        return list(example.units)

    def series(self, example: Any) -> np.ndarray | None:
        """Return the numbers `(L, C)` that the steps read; None for text."""
        return None

    def with_series(self, example: Any, stop: int, rows: Sequence[Sequence[float]]) -> Any:
        """Return an example with other numbers, `(L, C)`, before the step `stop`."""
        content = np.array(example.content, np.float32)
        content[stop - len(rows) : stop] = rows
        return replace(example, content=content)

    def excerpt(self, example: Any, usual: tuple[int, int]) -> tuple[int, int]:
        """Return the first and last token that the report shows of a long example, `usual` by default."""
        return usual

    def shown(self, example: Any, start: int, stop: int) -> Shown:
        """Return the input of the recurrent layers for an excerpt."""
        series = self.series(example)
        return Shown(self.steps(example)[start:stop], None if series is None else series[start:stop])


def questions_of(task: Task[Any, Any, Any]) -> Questions[Any]:
    """Return the questions for a task.

    Raises:
        UserError: the report does not support the task
    """
    if task.name not in _QUESTIONS:
        raise UserError(f"report: the task {task.name} has no report yet")
    module = import_module(f"glassgate.tasks.report.{task.name.replace('-', '_')}")
    questions: Questions[Any] = getattr(module, _QUESTIONS[task.name])(task)
    return questions
