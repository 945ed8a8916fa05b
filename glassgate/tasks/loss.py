"""The parts of a loss: means whose values are divided between processes; and their precision."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor


class Mean(NamedTuple):
    """A mean as it is before the division, so that those of several processes can be joined exactly.

    Attributes:
        total: sum of the values, a scalar
        number: how many they are
    """

    total: Tensor
    number: int | Tensor

    @classmethod
    def of(cls, values: Tensor) -> Self:
        """Return the mean of all values."""
        return cls(values.sum(), values.numel())


Loss = Sequence[Mean]
"""The parts of a loss; it is the sum of these means."""


def full(scores: Tensor) -> Tensor:
    """Return scores in single precision, or in double where they are so."""
    return scores if scores.dtype == torch.float64 else scores.float()


def value(loss: Loss, counts: Sequence[float] | None = None) -> Tensor:
    """Return a loss as a scalar.

    Args:
        loss: its parts
        counts: the divisor of each part's sum; the part's own count if None

    Example:
        >>> value([Mean(torch.tensor(6.0), 3), Mean(torch.tensor(1.0), 2)])
        tensor(2.5000)
    """
    divisors = [part.number for part in loss] if counts is None else counts
    parts = [part.total / max(1, divisor) for part, divisor in zip(loss, divisors, strict=True)]
    return torch.stack(parts).sum() if len(parts) > 1 else parts[0]
