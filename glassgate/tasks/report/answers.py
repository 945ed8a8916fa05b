"""The answers of a network, for the report: the most probable choices, the target, and the values to differentiate."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.glass.languages import say
from glassgate.glass.study import Answer, Choice
from glassgate.tasks.data.unknown import mask_unknown

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
