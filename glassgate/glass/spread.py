"""The spread of a measure over passages: its value on resampled passages, or on resampled blocks of one passage."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SAMPLES = 200
# Fewer passages than this are divided into blocks of neighbouring steps, which are resampled in their place.
_LEAST_GROUPS = 20
# The interval holds 90 % of the resampled values.
_LEVELS = (0.05, 0.95)


class Interval(NamedTuple):
    """90 % of the resampled values of a measure lie between `low` and `high`."""

    low: float
    high: float


def groups(lengths: Sequence[int]) -> np.ndarray:
    """The group that each step, or each answer, is resampled with: its passage, or its block of a long passage.

    Example:
        >>> groups([2, 1]).tolist(), len(set(groups([100]).tolist()))
        ([0, 1, 2], 20)
    """
    total = max(1, sum(lengths))
    numbers, first = [], 0
    for length in lengths:
        many = max(1, min(length, round(_LEAST_GROUPS * length / total))) if len(lengths) < _LEAST_GROUPS else 1
        numbers.append(first + np.arange(length) * many // max(1, length))
        first += many
    return np.concatenate(numbers) if numbers else np.zeros(0, int)


def weights(number: np.ndarray) -> np.ndarray:
    """How often each sample draws each group, (SAMPLES, G), from the same seed every time."""
    many = int(number.max()) + 1 if len(number) else 0
    drawn = np.random.default_rng(0).multinomial(many, np.full(many, 1 / max(many, 1)), SAMPLES) if many else None
    return np.zeros((SAMPLES, 0)) if drawn is None else drawn.astype(float)


def sums(values: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The sum of values (S, ...) over each group, (G, ...)."""
    found = np.zeros((int(number.max()) + 1, *values.shape[1:]))
    np.add.at(found, number, values)
    return found


def of_mean(values: np.ndarray, number: np.ndarray) -> Interval:
    """The interval of the mean of values (S,).

    Example:
        >>> low, high = of_mean(np.arange(100.0), groups([100]))
        >>> low < 49.5 < high
        True
    """
    if not len(values):
        return Interval(0.0, 0.0)
    drawn = weights(number)
    return interval((drawn @ sums(values, number)) / (drawn @ sums(np.ones(len(values)), number)))


def of_correlation(x: np.ndarray, y: np.ndarray, number: np.ndarray) -> Interval:
    """The interval of the correlation of x and y, (S,) each."""
    parts = weights(number) @ sums(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1), number)
    n, sx, sy, xx, yy, xy = parts.T
    across = n * xy - sx * sy
    size = np.sqrt(np.maximum(n * xx - sx * sx, 0) * np.maximum(n * yy - sy * sy, 0))
    found = np.divide(across, size, out=np.zeros_like(across), where=size > 1e-12)
    return interval(found * np.sign(np.median(found) or 1.0))


def interval(samples: np.ndarray) -> Interval:
    """The interval of a measure from its resampled values."""
    low, high = np.quantile(samples, _LEVELS)
    return Interval(float(low), float(high))
