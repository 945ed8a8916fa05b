"""Scores of tasks that torchmetrics does not have, and the values of those that were counted."""

import copy
import math

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from glassgate.tasks.processes.group import Group


def alone() -> bool:
    """Tell torchmetrics that there is no other process: it would wait for those that do not score."""
    return False


def scored(metrics: MetricCollection, processes: Group | None = None) -> dict[str, float]:
    """The scores that have a value, of what all processes have counted."""
    for each in metrics.values():
        each.distributed_available_fn = alone
    if processes is None or processes.size == 1:
        return _computed(metrics)
    counted = {name: copy.deepcopy(each).cpu() for name, each in metrics.items(keep_base=True)}
    for others in processes.gathered(counted)[1:]:
        for name, each in metrics.items(keep_base=True):
            each.merge_state(others[name].to(each.device))
    return processes.first(_computed(metrics) if processes.leads else {})


def _computed(metrics: MetricCollection) -> dict[str, float]:
    scores = {name: float(value) for name, value in metrics.compute().items()}
    return {name: score for name, score in scores.items() if not math.isnan(score)}


class Likelihood(Metric):
    """What a model's probabilities of the right units come to: nats and bits per unit, perplexity.

    Example:
        >>> metric = Likelihood()
        >>> metric.update(torch.tensor([0.5, 0.25]).log().neg())
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'nats': 1.04, 'bits': 1.5, 'perplexity': 2.828}
    """

    full_state_update = False

    total: Tensor
    units: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("units", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, nats: Tensor) -> None:
        """Count units, `(S,)`, each by minus the natural logarithm of its probability."""
        self.total += nats.double().sum()
        self.units += nats.numel()

    def compute(self) -> dict[str, Tensor]:
        """Return the means over all units; the perplexity is e to the power of the nats."""
        nats = self.total / self.units
        return {"nats": nats, "bits": nats / math.log(2), "perplexity": nats.exp()}


class MacroF1(Metric):
    """The mean of the labels' F1, over those that occur or were predicted.

    Args:
        labels: how many there are; their number may be large, as where a wrong column is scored

    Example:
        >>> metric = MacroF1(4)
        >>> metric.update(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 2, -100]))
        >>> metric.compute()  # 1 of label 0, 2/3 of label 1, 0 of label 2
        tensor(0.5556, dtype=torch.float64)
    """

    full_state_update = False

    right: Tensor
    found: Tensor
    wanted: Tensor

    def __init__(self, labels: int):
        super().__init__()
        for name in ("right", "found", "wanted"):
            self.add_state(name, torch.zeros(labels, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count a batch, both of one shape, `target` negative where there is no label."""
        preds, target = preds[target >= 0], target[target >= 0]
        for counts, labels in ((self.right, target[preds == target]), (self.found, preds), (self.wanted, target)):
            counts += labels.bincount(minlength=len(counts))

    def compute(self) -> Tensor:
        """Return the mean, not a number where there is no label."""
        total = self.found + self.wanted
        return (2.0 * self.right.double() / total)[total > 0].mean()


class WholeTokens(Metric):
    """The share of tokens, each made of several units, whose units are all labelled right.

    Example:
        >>> metric = WholeTokens()
        >>> metric.update(torch.tensor([[1, 1, 2]]), torch.tensor([[1, 1, 1]]), torch.tensor([[0, 0, 1]]))
        >>> metric.compute()
        tensor(0.5000)
    """

    full_state_update = False

    right: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("right", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("total", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor, tokens: Tensor) -> None:
        """Count a batch: all arguments `(N, L)`, tokens numbered from 0 in each row, -1 where there is none."""
        rows = torch.arange(len(tokens), device=tokens.device)[:, None] * (tokens.max() + 1)
        inside = tokens >= 0
        numbers, places = torch.unique((tokens + rows)[inside], return_inverse=True)
        wrong = torch.zeros(len(numbers), dtype=torch.long, device=tokens.device)
        wrong.index_add_(0, places, (preds != target)[inside].long())
        self.right += (wrong == 0).sum()
        self.total += len(numbers)

    def compute(self) -> Tensor:
        """Return the share, not a number where there was no token."""
        return self.right / self.total


class Frames(Metric):
    """The share of sequences whose intent is right, and of those whose intent and labels are all right.

    Example:
        >>> metric = Frames()
        >>> intents = torch.tensor([3, 4])
        >>> metric.update(torch.tensor([[1, 1], [1, 0]]), torch.tensor([[1, 2], [1, -100]]), intents, intents)
        >>> {name: float(value) for name, value in metric.compute().items()}
        {'intent_accuracy': 1.0, 'frame_accuracy': 0.5}
    """

    full_state_update = False

    intents: Tensor
    frames: Tensor
    sequences: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("intents", "frames", "sequences"):
            self.add_state(name, torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor, intents: Tensor, true_intents: Tensor) -> None:
        """Count a batch: labels `(N, L)`, `target` negative where there is no unit, and intents `(N,)`."""
        right = intents == true_intents
        self.intents += right.sum()
        self.frames += (right & ((preds == target) | (target < 0)).all(1)).sum()
        self.sequences += len(right)

    def compute(self) -> dict[str, Tensor]:
        """Return the two shares."""
        return {"intent_accuracy": self.intents / self.sequences, "frame_accuracy": self.frames / self.sequences}
