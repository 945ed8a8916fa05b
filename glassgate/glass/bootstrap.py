"""Bootstrap intervals of a measure over passages, or over blocks of steps if there are few passages.

Values are resampled in groups. In all functions, `groups` (S,) contains the group index of each value.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

SAMPLES = 200
# Fewer passages than this are divided into blocks of adjacent steps, and the blocks are resampled instead.
_MIN_GROUPS = 20
# The quantiles at the ends of an interval, which contains 90 % of the resampled values.
_LEVELS = (0.05, 0.95)


class Interval(NamedTuple):
    """The range from `low` to `high` that contains 90 % of the resampled values of a measure."""

    low: float
    high: float


def resampling_groups(lengths: Sequence[int]) -> np.ndarray:
    """The resampling group of each step: its passage or, with few passages, its block of adjacent steps.

    Example:
        >>> resampling_groups([2, 1]).tolist(), len(set(resampling_groups([100]).tolist()))
        ([0, 1, 2], 20)
    """
    total = max(1, sum(lengths))
    groups, first = [], 0
    for length in lengths:
        count = max(1, min(length, round(_MIN_GROUPS * length / total))) if len(lengths) < _MIN_GROUPS else 1
        groups.append(first + np.arange(length) * count // max(1, length))
        first += count
    return np.concatenate(groups) if groups else np.zeros(0, int)


def weights(groups: np.ndarray) -> np.ndarray:
    """The number of times that each sample draws each of the G groups, (SAMPLES, G). The seed is fixed."""
    return _draw_counts(int(groups.max()) + 1) if len(groups) else np.zeros((SAMPLES, 0))


@lru_cache(32)
def _draw_counts(count: int) -> np.ndarray:
    return np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), SAMPLES).astype(float)


def sums(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The sum of values (S, ...) over each group, (G, ...)."""
    totals = np.zeros((int(groups.max()) + 1, *values.shape[1:]))
    np.add.at(totals, groups, values)
    return totals


def means(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The mean of values (S, ...) in each sample, (SAMPLES, ...)."""
    drawn = weights(groups)
    counts = (drawn @ sums(np.ones(len(values)), groups)).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray(np.tensordot(drawn, sums(values, groups), 1) / counts)


def deviations(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The standard deviation of values (S, H) in each sample, (SAMPLES, H)."""
    centred = values - values.mean(0)
    return np.asarray(np.sqrt(np.maximum(means(centred * centred, groups) - means(centred, groups) ** 2, 0)))


def correlations(x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The correlations (SAMPLES, P) of the columns of x and y, (S, P) each, in each sample; 0 for constant columns."""
    x, y = x - x.mean(0), y - y.mean(0)
    mean_x, mean_y = means(x, groups), means(y, groups)
    covariance = means(x * y, groups) - mean_x * mean_y
    variances = (means(x * x, groups) - mean_x**2).clip(min=0) * (means(y * y, groups) - mean_y**2).clip(min=0)
    return np.divide(covariance, np.sqrt(variances), out=np.zeros_like(covariance), where=variances > 1e-24)


def mean_interval(values: np.ndarray, groups: np.ndarray) -> Interval:
    """The interval of the mean of values (S,).

    Example:
        >>> low, high = mean_interval(np.arange(100.0), resampling_groups([100]))
        >>> low < 49.5 < high
        True
    """
    return interval(means(values, groups)) if len(values) else Interval(0.0, 0.0)


def correlation_interval(x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> Interval:
    """The interval of the absolute correlation of x and y, (S,) each."""
    estimates = correlations(x[:, None], y[:, None], groups)[:, 0]
    return interval(estimates * np.sign(np.median(estimates) or 1.0))


def interval(samples: np.ndarray) -> Interval:
    """The interval of a measure from its resampled values."""
    low, high = np.quantile(samples, _LEVELS)
    return Interval(float(low), float(high))
