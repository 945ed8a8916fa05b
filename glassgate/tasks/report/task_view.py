"""The interface between the report and a task. Each task implements it in a module of its own."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from glassgate.glass.study import Passage
from glassgate.tasks import part_of
from glassgate.tasks.data.batches import Batch, Encoded, collate, to_device
from glassgate.tasks.data.batching import Piece
from glassgate.tasks.errors import UserError
from glassgate.tasks.report.answers import BatchAnswers
from glassgate.tasks.task import Task

TaskType = TypeVar("TaskType", bound=Task[Any, Any, Any])

LAYER = "encoder"
"""The attribute of every network that holds the recurrent layers shown in the report."""


class TaskView(Generic[TaskType]):
    """A task as the report sees it: examples, answers and steps. Each task has a subclass.

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
        """Run a network on a batch. The report records the first call of `encoder`, which must read the shown steps."""
        return network(batch)

    def answers(self, output: Any, batch: Batch) -> BatchAnswers:
        """Return the answers in the output for a batch. All rows of the batch must be copies of one example."""
        raise NotImplementedError

    def answers_for_batch(self, batch: Batch, network: nn.Module | None = None) -> BatchAnswers:
        """Return the answers of a network, by default the task's network, for copies of one example."""
        return self.answers(self.run(network or self.task.network, batch), batch)

    def batch(self, encoded: Sequence[Encoded], pieces: Sequence[Piece]) -> Batch:
        """Return pieces of encoded examples as a batch on the device of the network."""
        device = next(self.task.network.parameters()).device
        return to_device(collate(encoded, pieces, self.task.padding), device)

    def answers_for_example(self, example: Any, start: int, stop: int) -> BatchAnswers:
        """Return the answers of the network for the steps of an example from `start` to `stop`, without gradients."""
        batch = self.batch([self.task.encode(example)], [Piece(0, start, stop)])
        with torch.no_grad():
            return self.answers_for_batch(batch, self.task.network.eval())

    def attention(self, example: Any) -> np.ndarray | None:
        """Return the attention of each answer, `(A, L)`; None for a network without attention."""
        return None

    def steps(self, example: Any) -> Sequence[str]:
        """Return a text for each step of the recurrent layers: its input, or its number."""
        return list(example.tokens)

    def series(self, example: Any) -> np.ndarray | None:
        """Return the numbers `(L, C)` that the steps read; None for text."""
        return None

    def with_series(self, example: Any, stop: int, rows: Sequence[Sequence[float]]) -> Any:
        """Return a copy of an example whose last L steps before `stop` are replaced by `rows`, `(L, C)`."""
        content = np.array(example.content, np.float32)
        content[stop - len(rows) : stop] = rows
        return replace(example, content=content)

    def excerpt(self, example: Any, default: tuple[int, int]) -> tuple[int, int]:
        """Return the range of steps that the report shows of a long example: `default`, or a subclass's choice."""
        return default

    def layer_input(self, example: Any, start: int, stop: int) -> Passage:
        """Return the input of the recurrent layers for an excerpt, as a passage without answers."""
        series = self.series(example)
        return Passage(self.steps(example)[start:stop], series=None if series is None else series[start:stop])


def view_of(task: Task[Any, Any, Any]) -> TaskView[Any]:
    """Return the report's view of a task: an object of the class `View` in `view.py`."""
    module = part_of(task, "view")
    if module is None:
        raise UserError(f"report: the task {task.name} has no report yet")
    view: TaskView[Any] = module.View(task)
    return view
