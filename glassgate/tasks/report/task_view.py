"""The interface between the report and a task: examples, steps and answers. Each task implements it in `view.py`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from glassgate.glass.languages import say
from glassgate.glass.study import Answer, Choice, Passage
from glassgate.tasks import part_of
from glassgate.tasks.data.batches import Batch, Encoded, collate, to_device
from glassgate.tasks.data.batching import Piece
from glassgate.tasks.data.unknown import mask_unknown
from glassgate.tasks.errors import UserError
from glassgate.tasks.task import Task

TaskType = TypeVar("TaskType", bound=Task[Any, Any, Any])

LAYER = "encoder"
"""The attribute of every network that holds the recurrent layers shown in the report."""
_MAX_CHOICES = 3  # per answer


class BatchAnswers(NamedTuple):
    """The answers for a batch.

    Attributes:
        answers: the A answers for the first row
        evidence: `(N, A)`, the value to differentiate for each answer of each row
        evidence_name: the name of this value
        groups: the answers, grouped by their choices; for example, one group for labels and one for intents
        scores: `(N, A)`, the value that is divided among the steps as their relevance: the log odds of the prediction
            over the second choice, or the predicted number
        unit: the unit of the losses
        score_name: the name of `scores`, with `{first}` and `{second}` for the two choices; "" for the log odds
    """

    answers: list[Answer]
    evidence: Tensor
    evidence_name: str
    groups: tuple["AnswerGroup", ...]
    scores: Tensor
    unit: str = "nats"
    score_name: str = ""


class AnswerGroup(NamedTuple):
    """Answers that share their K choices.

    Attributes:
        logs: `(N, A, K)`, the logarithm of the probability of each choice
        references: `(N, A)`, the index of the target or, without a target, of the prediction
        control_losses: `(N, A)`, the losses with targets exchanged between answers; None to compute them from `logs`
    """

    logs: Tensor
    references: Tensor
    control_losses: Tensor | None = None

    @classmethod
    def of_losses(cls, losses: Tensor, control_losses: Tensor) -> "AnswerGroup":
        """Return a group of answers that are numbers, from their losses. They have a single choice: K is 1."""
        references = torch.zeros_like(losses, dtype=torch.long)
        return cls(-losses.detach()[..., None], references, control_losses.detach())

    def loss(self, choices: Tensor) -> Tensor:
        """Return minus the log probability of one choice per answer. `choices` has indices, `(N, A)`."""
        return -self.logs.gather(-1, choices[..., None])[..., 0]


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


def answers_of(
    log_probabilities: Tensor, names: Sequence[str], targets: Tensor | None, steps: Sequence[int | None]
) -> BatchAnswers:
    """Return the answers for probabilities of choices.

    Args:
        log_probabilities: `(N, A, K)`, logarithms of the probabilities of K choices for each of A answers
        names: the name of each choice
        targets: `(N, A)`, the index of the right choice, outside of 0 to K - 1 if unknown; None if all are unknown
        steps: the step of each answer, or None for an answer about the whole sequence
    """
    log_probabilities = log_probabilities.float()
    fixed = log_probabilities.detach()
    best, best_two = fixed.argmax(-1), fixed.topk(min(2, len(names)), -1).indices
    targets = None if targets is None else mask_unknown(targets, len(names))
    references = best if targets is None else targets.where(targets >= 0, best)
    probabilities = fixed[0].exp()
    top = probabilities.topk(min(_MAX_CHOICES, len(names)), -1)
    first_targets = [-1] * len(steps) if targets is None else targets[0].tolist()
    answers = []
    for k, (step, target) in enumerate(zip(steps, first_targets, strict=True)):
        best_k = zip(top.indices[k].tolist(), top.values[k].tolist(), strict=True)
        choices = tuple(Choice(names[index], probability) for index, probability in best_k)
        known = Choice(names[target], float(probabilities[k, target])) if target >= 0 else None
        answers.append(Answer(step, choices, known))
    logs_of_two = log_probabilities.gather(-1, best_two)
    return BatchAnswers(
        answers,
        log_probabilities.gather(-1, references[..., None])[..., 0],
        say("quantity.of_prediction") if targets is None else say("quantity.of_target"),
        (AnswerGroup(fixed, references),),
        logs_of_two[..., 0] - logs_of_two[..., -1],
    )


def number_answers(
    predicted: Sequence[float], targets: Sequence[float] | None, steps: Sequence[int | None]
) -> list[Answer]:
    """Return predicted numbers as answers; `targets` is None if the right numbers are unknown."""
    target_choices = [None] * len(predicted) if targets is None else [Choice(f"{each:.5g}", None) for each in targets]
    predicted_choices = ((Choice(f"{each:.5g}", None),) for each in predicted)
    return [Answer(*each) for each in zip(steps, predicted_choices, target_choices, strict=True)]


def visible(token: str) -> str:
    """Replace line ends and tabs of a token by signs, and its other invisible characters by escape sequences.

    Example:
        >>> visible(chr(10)), visible(chr(9)), visible("a")
        ('↵', '⇥', 'a')
    """
    signs = {"\n": "↵", "\t": "⇥", "\r": "␍"}
    return "".join(
        signs.get(c, c if c.isprintable() else c.encode("unicode_escape").decode("ascii", "replace")) for c in token
    )
