"""The answers of a network, for the report: the most probable choices, the target, and the values to differentiate."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.data.unknown_labels import without_unknown

# The number of choices that an answer keeps.
_MOST = 3


class Choice(NamedTuple):
    """A possible answer with its probability, or a predicted number without one."""

    name: str
    probability: float | None


class Answer(NamedTuple):
    """One answer of a model.

    Attributes:
        step: the step of the answer, from 0; None for an answer about the whole sequence
        best: the most probable choices, the prediction first
        target: the right answer; None without a reference
        agreement: of sets, the F1 score of the prediction against the target; None of single choices
    """

    step: int | None
    best: tuple[Choice, ...]
    target: Choice | None
    agreement: float | None = None


class BatchAnswers(NamedTuple):
    """The answers for a batch.

    Attributes:
        answers: the A answers for the first row
        evidence: `(N, A)`, the value to differentiate for each answer of each row
        evidence_name: the name of this value
        groups: the answers in groups that share their choices, such as labels and intents
        scores: `(N, A)`, the value whose relevance the report shows: the log odds of the prediction over the next
            choice, or the predicted number
        unit: the unit of the losses
        score_name: the name of `scores`, with `{0}` and `{1}` for the two choices
    """

    answers: list[Answer]
    evidence: Tensor
    evidence_name: str
    groups: tuple["AnswerGroup", ...]
    scores: Tensor
    unit: str = "nats"
    score_name: str = "log odds of {0} over {1}"


class LayerInput(NamedTuple):
    """The input of the recurrent layers.

    Attributes:
        steps: each step as text
        series: `(L * rows_per_step, C)`, the numbers of a series; None for text
        rows_per_step: the number of rows of the series that one step reads
        names: the names of the C channels
        times: the time stamp of each row, and of each forecast after them
    """

    steps: Sequence[str]
    series: np.ndarray | None
    rows_per_step: int = 1
    names: Sequence[str] = ()
    times: Sequence[str] = ()


class AnswerGroup(NamedTuple):
    """Answers that share their K choices.

    Attributes:
        logs: `(N, A, K)`, the logarithm of the probability of each choice
        chosen: `(N, A)`, the index of the target, or of the prediction if there is no target
        others: `(N, A)`, the losses with the targets in another order; None if `logs` gives them
    """

    logs: Tensor
    chosen: Tensor
    others: Tensor | None = None

    @classmethod
    def of_losses(cls, losses: Tensor, others: Tensor) -> "AnswerGroup":
        """Return the group of answers that are numbers, with a loss each. They have a single choice: K is 1."""
        chosen = torch.zeros_like(losses, dtype=torch.long)
        return cls(-losses.detach()[..., None], chosen, others.detach())

    def loss(self, chosen: Tensor) -> Tensor:
        """Return minus the logarithm of the probability of the choices `chosen`, `(N, A)`."""
        return -self.logs.gather(-1, chosen[..., None])[..., 0]


class Compared(NamedTuple):
    """Answers compared with those of another run, `(N, A)` each.

    Attributes:
        losses: minus the logarithm of the probability of the target, or of the other run's prediction if there is no
            target
        right: whether that is the most probable choice
        others: the losses with the targets in another order
    """

    losses: Tensor
    right: Tensor
    others: Tensor


def compared(now: BatchAnswers, first: BatchAnswers, other: BatchAnswers) -> Compared:
    """Compare the answers of a changed network with those of the whole network.

    Args:
        now: the answers of the changed network, one row for each change
        first: the answers of the whole network for the same sequence, in one row
        other: those for another sequence. If a sequence has only one answer, `others` uses the target of this one
    """
    losses, right, others = [], [], []
    for here, there, elsewhere in zip(now.groups, first.groups, other.groups, strict=True):
        chosen = there.chosen[:1].expand(len(here.logs), -1)
        moved = chosen.roll(chosen.shape[1] // 2, 1)
        if chosen.shape[1] == 1:
            moved = elsewhere.chosen[:1, :1].expand(len(here.logs), -1)
        losses.append(here.loss(chosen))
        right.append(here.logs.argmax(-1) == chosen)
        others.append(here.loss(moved) if here.others is None else here.others)
    return Compared(torch.cat(losses, 1), torch.cat(right, 1), torch.cat(others, 1))


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
    best = log_probabilities.detach().argmax(-1)
    targets = None if targets is None else without_unknown(targets, len(names))
    chosen = best if targets is None else targets.where(targets >= 0, best)
    probabilities = log_probabilities[0].detach().exp()
    top, which = probabilities.topk(min(_MOST, len(names)), -1)
    right = [-1] * len(steps) if targets is None else targets[0].tolist()
    answers = [
        Answer(
            step,
            tuple(Choice(names[number], chance) for chance, number in zip(*pair, strict=True)),
            Choice(names[target], float(of_step[target])) if target >= 0 else None,
        )
        for step, pair, target, of_step in zip(
            steps, zip(top.tolist(), which.tolist(), strict=True), right, probabilities, strict=True
        )
    ]
    evidence_name = "the log probability of the prediction" if targets is None else "the log probability of the target"
    evidence = log_probabilities.gather(-1, chosen[..., None])[..., 0]
    two = log_probabilities.detach().topk(min(2, len(names)), -1).indices
    scores = log_probabilities.gather(-1, two)
    return BatchAnswers(
        answers,
        evidence,
        evidence_name,
        (AnswerGroup(log_probabilities.detach(), chosen),),
        scores[..., 0] - scores[..., -1],
    )


def number_answers(
    predicted: Sequence[float], targets: Sequence[float] | None, steps: Sequence[int | None]
) -> list[Answer]:
    """Return predicted numbers as answers; the targets are None if they are unknown."""
    right = [None] * len(predicted) if targets is None else [Choice(f"{each:.5g}", None) for each in targets]
    best = ((Choice(f"{each:.5g}", None),) for each in predicted)
    return [Answer(*each) for each in zip(steps, best, right, strict=True)]


def visible(unit: str) -> str:
    """A token in visible characters: a sign for a line end, a tab and the like.

    Example:
        >>> visible(chr(10)), visible(chr(9)), visible("a")
        ('↵', '⇥', 'a')
    """
    signs = {"\n": "↵", "\t": "⇥", "\r": "␍"}
    return "".join(
        signs.get(c, c if c.isprintable() else c.encode("unicode_escape").decode("ascii", "replace")) for c in unit
    )
