"""A task's answers for the report: the likeliest choices, their probabilities, the target, and the evidence."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.data.unknown_labels import without_unknown

# Choices that are kept of each answer.
_MOST = 3


class Choice(NamedTuple):
    """A possible answer. Its probability is None for a number."""

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


class Seen(NamedTuple):
    """A batch's answers.

    Attributes:
        answers: those of the first row
        evidence: `(N, A)`, the value to differentiate for each answer of each row
        evidence_name: the name of the evidence
        chances: the answers in one or more groups
        scores: `(N, A)`, the value whose relevance the report shows: the log odds of the prediction over the next
            choice, or a number
        unit: of the losses
        score: the name of the scores, with `{0}` and `{1}` for the two choices
    """

    answers: list[Answer]
    evidence: Tensor
    evidence_name: str
    chances: tuple["Chances", ...]
    scores: Tensor
    unit: str = "nats"
    score: str = "log odds of {0} over {1}"


class Shown(NamedTuple):
    """The input of the recurrent layers.

    Attributes:
        steps: each step as text
        series: `(L * pace, C)`, the numbers of a series
        pace: the rows that one step reads
        names: of the C channels
        times: the time stamp of each row, and of each forecast after them
    """

    steps: Sequence[str]
    series: np.ndarray | None
    pace: int = 1
    names: Sequence[str] = ()
    times: Sequence[str] = ()


class Chances(NamedTuple):
    """The choices of some answers.

    Attributes:
        logs: `(N, A, K)`, the logarithm of the probability of each choice
        chosen: `(N, A)`, the number of the target, or of the prediction without a target
        others: `(N, A)`, the losses with the targets in another order, of answers without choices
    """

    logs: Tensor
    chosen: Tensor
    others: Tensor | None = None

    @classmethod
    def of_losses(cls, losses: Tensor, others: Tensor) -> "Chances":
        """Of answers that have a loss and no choices."""
        chosen = torch.zeros_like(losses, dtype=torch.long)
        return cls(-losses.detach()[..., None], chosen, others.detach())

    def loss(self, chosen: Tensor) -> Tensor:
        """Minus the logarithm of the probability of a choice `(N, A)`."""
        return -self.logs.gather(-1, chosen[..., None])[..., 0]


class Compared(NamedTuple):
    """Answers compared with those of another run, `(N, A)` each.

    Attributes:
        losses: minus the logarithm of the probability of the target, or else of the other run's prediction
        right: whether that is the likeliest choice
        others: the losses with the targets in another order
    """

    losses: Tensor
    right: Tensor
    others: Tensor


def compared(now: Seen, first: Seen, other: Seen) -> Compared:
    """Compare answers with those of another run of one row.

    Args:
        first: the other run
        other: the other run's answers on another sequence, whose target an only answer gets in place of its own
    """
    losses, right, others = [], [], []
    for here, there, elsewhere in zip(now.chances, first.chances, other.chances, strict=True):
        chosen = there.chosen[:1].expand(len(here.logs), -1)
        moved = chosen.roll(chosen.shape[1] // 2, 1)
        if chosen.shape[1] == 1:
            moved = elsewhere.chosen[:1, :1].expand(len(here.logs), -1)
        losses.append(here.loss(chosen))
        right.append(here.logs.argmax(-1) == chosen)
        others.append(here.loss(moved) if here.others is None else here.others)
    return Compared(torch.cat(losses, 1), torch.cat(right, 1), torch.cat(others, 1))


def seen(log_chances: Tensor, names: Sequence[str], targets: Tensor | None, steps: Sequence[int | None]) -> Seen:
    """Make answers from probabilities.

    Args:
        log_chances: `(N, A, K)`, logarithms of the probabilities of K choices for each of A answers
        names: of the choices
        targets: `(N, A)`, the number of the right choice, outside of the K if unknown; None if all are unknown
        steps: of the answers
    """
    log_chances = log_chances.float()
    best = log_chances.detach().argmax(-1)
    targets = None if targets is None else without_unknown(targets, len(names))
    chosen = best if targets is None else targets.where(targets >= 0, best)
    chances = log_chances[0].detach().exp()
    top, which = chances.topk(min(_MOST, len(names)), -1)
    right = [-1] * len(steps) if targets is None else targets[0].tolist()
    answers = [
        Answer(
            step,
            tuple(Choice(names[number], chance) for chance, number in zip(*pair, strict=True)),
            Choice(names[target], float(of_step[target])) if target >= 0 else None,
        )
        for step, pair, target, of_step in zip(
            steps, zip(top.tolist(), which.tolist(), strict=True), right, chances, strict=True
        )
    ]
    evidence_name = "the log probability of the prediction" if targets is None else "the log probability of the target"
    evidence = log_chances.gather(-1, chosen[..., None])[..., 0]
    two = log_chances.detach().topk(min(2, len(names)), -1).indices
    scores = log_chances.gather(-1, two)
    return Seen(
        answers, evidence, evidence_name, (Chances(log_chances.detach(), chosen),), scores[..., 0] - scores[..., -1]
    )


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
