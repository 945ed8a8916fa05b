"""The dynamics of one direction of one layer: how long small differences survive, and its fixed points."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

MAX_TIME_CONSTANT = 1000.0
"""The maximum time constant in steps. Windows of a few dozen steps cannot show a longer time constant."""


def time_constant(exponent: float) -> float:
    """The number of steps in which a small difference shrinks by a factor of e.

    Example:
        >>> time_constant(-0.5), time_constant(0.1)
        (2.0, 1000.0)
    """
    return min(MAX_TIME_CONSTANT, -1 / exponent) if exponent < 0 else MAX_TIME_CONSTANT


@dataclass(frozen=True)
class Points:
    """The fixed points under the mean input, in the plane of the first two principal components of visited states.

    Attributes:
        coordinates: the positions of the points in the plane, (K, 2)
        stable: whether each point is stable, (K,)
        time_constants: the longest time constant of each point in steps, (K,)
        visited: the positions of the states after each step of the windows, (L, N, 2)
        explained: the fraction of the variance of the visited states along each axis, (2,)
    """

    coordinates: np.ndarray
    stable: np.ndarray
    time_constants: np.ndarray
    visited: np.ndarray
    explained: np.ndarray

    @property
    def stable_count(self) -> int:
        """The number of stable points."""
        return int(self.stable.sum())

    @property
    def longest_time_constant(self) -> float | None:
        """The longest time constant of a stable point in steps; None without a stable point."""
        return float(self.time_constants[self.stable].max()) if self.stable.any() else None


@dataclass(frozen=True)
class Dynamics:
    """The dynamics of one direction of one layer, in N windows of L steps of its inputs.

    Attributes:
        survival: the fraction of a small random difference of the states that is left after each step, (L, N)
        size: S, the number of state variables
        search: finds the fixed points; None if S is too large
    """

    survival: np.ndarray
    size: int
    search: Callable[[], Points] | None = None

    @cached_property
    def points(self) -> Points | None:
        """The fixed points. They are searched for on first use, because untrained networks seldom need them."""
        return self.search() if self.search else None

    @cached_property
    def exponents(self) -> np.ndarray:
        """The largest Lyapunov exponent in each window, (N,): the mean log growth per step in its second half."""
        logs = np.log(np.maximum(self.survival, np.finfo(float).tiny))
        half = len(logs) // 2
        return np.asarray((logs[-1] - logs[half - 1]) / (len(logs) - half))

    @property
    def exponent(self) -> float:
        """The mean of the largest exponent over windows."""
        return float(self.exponents.mean())

    @cached_property
    def survival_quantiles(self) -> np.ndarray:
        """Median, 10th and 90th percentile of the survival over windows, after 0, 1, ... steps, (3, L + 1)."""
        whole = np.vstack([np.ones(self.survival.shape[1]), self.survival])
        return np.asarray(np.quantile(whole, (0.5, 0.1, 0.9), axis=1))
