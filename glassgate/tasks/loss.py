"""Losses as sums of means, and the cross entropy that most tasks use.

With several processes, sums and counts are added up before the division, so the loss is the same as with one process.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

_IGNORED = -100


class Mean(NamedTuple):
    """A mean before the division, as the sum of the values, a scalar, and their number."""

    total: Tensor
    num_values: int | Tensor

    @classmethod
    def of(cls, values: Tensor, mask: Tensor | None = None) -> Self:
        """Return the mean of all values, or of those where the mask is true."""
        if mask is None:
            return cls(values.sum(), values.numel())
        return cls(values.where(mask, 0.0).sum(), mask.sum())  # on a GPU, `values[mask]` would wait for the mask


Loss = Sequence[Mean]
"""The parts of a loss; the loss is the sum of these means."""


def to_float(scores: Tensor) -> Tensor:
    """Convert scores to float32; float64 stays float64."""
    return scores if scores.dtype == torch.float64 else scores.float()


def cross_entropy(scores: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return the negative log-likelihood of each target in nats, and the mask of the targets that count.

    Targets outside of 0 to K - 1 do not count: padding, missing labels, and labels that the training data lacks.

    Args:
        scores: the scores of K classes, `(..., K)`
        targets: the indices of the correct classes, `(...)`
        label_smoothing: the fraction of each target that is spread over all classes

    Returns:
        the nats, 0 for targets that do not count, and the mask, both `(...)`

    Example:
        >>> cross_entropy(torch.zeros(3, 2), torch.tensor([1, -1, 2]))
        (tensor([0.6931, 0.0000, 0.0000]), tensor([ True, False, False]))
    """
    mask = (targets >= 0) & (targets < scores.shape[-1])
    nats = F.cross_entropy(
        to_float(scores).flatten(0, -2),
        targets.where(mask, _IGNORED).flatten(),
        ignore_index=_IGNORED,
        label_smoothing=label_smoothing,
        reduction="none",
    )
    return nats.unflatten(0, targets.shape), mask


def totals_and_counts(loss: Loss) -> Tensor:
    """Return the totals and the counts of the P parts of a loss, `(2, P)`, on their device and without gradients."""
    totals = [part.total.detach() for part in loss]
    counts = [
        part.num_values.to(part.total)
        if isinstance(part.num_values, Tensor)
        else part.total.new_full((), part.num_values)
        for part in loss
    ]
    return torch.stack([*totals, *counts]).unflatten(0, (2, -1))


def loss_value(loss: Loss, counts: Tensor | None = None) -> Tensor:
    """Return a loss as a scalar: the sum of its means. `counts`, `(P,)`, replaces the divisors of the P parts."""
    counts = totals_and_counts(loss)[1] if counts is None else counts
    totals = torch.stack([part.total for part in loss])
    return (totals / counts.to(totals.dtype).clamp(min=1)).sum()
