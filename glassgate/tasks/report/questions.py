"""The interface between the report and a task. Each task implements it in a module of its own."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from glassgate.tasks.data.batches import Batch, Encoded, collate, to_device
from glassgate.tasks.data.pieces import Piece
from glassgate.tasks.errors import UserError
from glassgate.tasks.report.answers import BatchAnswers, LayerInput
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
    """A task as the report reads it: examples, answers and steps. Each task has a subclass.

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

    def answers(self, output: Any, batch: Batch) -> BatchAnswers:
        """Return the answers for a batch whose rows are equal."""
        raise NotImplementedError

    def batch(self, encoded: Sequence[Encoded], pieces: Sequence[Piece]) -> Batch:
        """Return pieces of encoded examples as a batch on the device of the network."""
        device = next(self.task.network.parameters()).device
        return to_device(collate(encoded, pieces, self.task.padding), device)

    def answers_to(self, example: Any, start: int, stop: int) -> BatchAnswers:
        """Return the answers of the network to the steps of an example from `start` to `stop`, without gradients."""
        batch = self.batch([self.task.encode(example)], [Piece(0, start, stop)])
        with torch.no_grad():
            return self.answers(self.run(self.task.network.eval(), batch), batch)

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
        """Return an example in which the last L steps before `stop` have other numbers, `(L, C)`."""
        content = np.array(example.content, np.float32)
        content[stop - len(rows) : stop] = rows
        return replace(example, content=content)

    def excerpt(self, example: Any, usual: tuple[int, int]) -> tuple[int, int]:
        """Return the range of tokens that the report shows of a long example, `usual` by default."""
        return usual

    def shown(self, example: Any, start: int, stop: int) -> LayerInput:
        """Return the input of the recurrent layers for an excerpt."""
        series = self.series(example)
        return LayerInput(self.steps(example)[start:stop], None if series is None else series[start:stop])


def questions_of(task: Task[Any, Any, Any]) -> Questions[Any]:
    """Return the implementation of a task.

    Raises:
        UserError: the report does not support the task
    """
    if task.name not in _QUESTIONS:
        raise UserError(f"report: the task {task.name} has no report yet")
    module = import_module(f"glassgate.tasks.report.{task.name.replace('-', '_')}")
    questions: Questions[Any] = getattr(module, _QUESTIONS[task.name])(task)
    return questions
