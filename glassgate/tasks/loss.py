"""The parts of a loss, as sums and counts that can be added over processes; and the precision of scores."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor


class Mean(NamedTuple):
    """A mean before the division: a sum and a count, so that several processes compute the exact mean.

    Attributes:
        total: the sum of the values, a scalar
        number: the count of the values
    """

    total: Tensor
    number: int | Tensor

    @classmethod
    def of(cls, values: Tensor) -> Self:
        """Return the mean of all values."""
        return cls(values.sum(), values.numel())


Loss = Sequence[Mean]
"""The parts of a loss; the loss is the sum of these means."""


def full(scores: Tensor) -> Tensor:
    """Return scores in float32, or float64 if they are float64."""
    return scores if scores.dtype == torch.float64 else scores.float()


def value(loss: Loss, counts: Sequence[float] | None = None) -> Tensor:
    """Return a loss as a scalar.

    Args:
        loss: the parts of the loss
        counts: the divisor of each part; its `number` if None

    Example:
        >>> value([Mean(torch.tensor(6.0), 3), Mean(torch.tensor(1.0), 2)])
        tensor(2.5000)
    """
    divisors = [part.number for part in loss] if counts is None else counts
    parts = [part.total / max(1, divisor) for part, divisor in zip(loss, divisors, strict=True)]
    return torch.stack(parts).sum() if len(parts) > 1 else parts[0]
