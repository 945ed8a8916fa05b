"""What the report shows of a task's answers: for each the likeliest, their probabilities, the target, and evidence."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.unseen import seen_alone

# How many choices are kept of each answer.
_MOST = 3


class Choice(NamedTuple):
    """Something that may be answered. The probability is None where a task has none, as of a number."""

    name: str
    probability: float | None


class Answer(NamedTuple):
    """One thing that a model says of a sequence.

    Attributes:
        step: the step that it belongs to, from 0; None where it is about the whole sequence
        best: the most probable choices, the prediction first
        target: what was right, where that is known
    """

    step: int | None
    best: tuple[Choice, ...]
    target: Choice | None


class Seen(NamedTuple):
    """A batch's answers.

    Attributes:
        answers: those of the first row
        evidence: `(N, A)`, what is differentiated for each answer of each row
        said: what evidence is, in words
        chances: some answers after others
        unit: of what is lost, see `lost`
    """

    answers: list[Answer]
    evidence: Tensor
    said: str
    chances: tuple["Chances", ...]
    unit: str = "nats"


class Shown(NamedTuple):
    """What the recurrent layers read.

    Attributes:
        steps: each step as text
        series: `(L * pace, C)`, the numbers where they are no text
        pace: how many of these rows one step reads
    """

    steps: Sequence[str]
    series: np.ndarray | None
    pace: int = 1


class Chances(NamedTuple):
    """What some answers could be.

    Attributes:
        logs: `(N, A, K)`, the logarithm of the probability of each choice
        chosen: `(N, A)`, the number of the target, or of the prediction where there is no target
    """

    logs: Tensor
    chosen: Tensor

    @classmethod
    def of_losses(cls, losses: Tensor) -> "Chances":
        """Where an answer has a loss of its own and no choices."""
        return cls(-losses.detach()[..., None], torch.zeros_like(losses, dtype=torch.long))


def compared(now: Seen, first: Seen) -> tuple[Tensor, Tensor]:
    """How each answer misses what another run of one row chose: the target, or else that run's prediction.

    Returns:
        `(N, A)`, minus the logarithm of its probability; and whether it is chosen now
    """
    losses, kept = [], []
    for here, there in zip(now.chances, first.chances, strict=True):
        chosen = there.chosen[:1].expand(len(here.logs), -1)
        losses.append(-here.logs.gather(-1, chosen[..., None])[..., 0])
        kept.append(here.logs.argmax(-1) == chosen)
    return torch.cat(losses, 1), torch.cat(kept, 1)


def seen(log_chances: Tensor, names: Sequence[str], targets: Tensor | None, steps: Sequence[int | None]) -> Seen:
    """Make answers of probabilities.

    Args:
        log_chances: `(N, A, K)`, logarithms of the probabilities of K choices for each of A answers
        names: of the choices
        targets: `(N, A)`, the number of the right choice, none of the K where it is not known; None if it never is
        steps: of the answers
    """
    log_chances = log_chances.float()
    best = log_chances.detach().argmax(-1)
    targets = None if targets is None else seen_alone(targets, len(names))
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
    said = "the log probability of the prediction" if targets is None else "the log probability of the target"
    evidence = log_chances.gather(-1, chosen[..., None])[..., 0]
    return Seen(answers, evidence, said, (Chances(log_chances.detach(), chosen),))


def visible(unit: str) -> str:
    """A unit as one can see it: line ends and the like by a sign.

    Example:
        >>> visible(chr(10)), visible(chr(9)), visible("a")
        ('↵', '⇥', 'a')
    """
    signs = {"\n": "↵", "\t": "⇥", "\r": "␍"}
    return "".join(
        signs.get(c, c if c.isprintable() else c.encode("unicode_escape").decode("ascii", "replace")) for c in unit
    )
