"""The number of threads of a call: torch's setting, limited by the available processors and by the work of the call."""

import os
from collections.abc import Callable, Iterable
from time import monotonic

import torch

from glassgate.system import SYSTEM

LIMIT_SECONDS = 1.0
"""The time for which the limits of the control groups are cached."""
CONTENTION_SECONDS = (0.1, 8.0)
"""The shortest and the longest time for which contention is assumed after threads have waited for each other."""
TIME_SLICE_WORK = 100_000_000
"""The number of multiplications that a thread computes in a scheduler time slice, a few milliseconds."""


def threads() -> int:
    """`torch.get_num_threads()`, limited by the number of processors that the caller may use.

    More threads than processors do not make a call faster. If a control group limits processor time, as in most
    containers, spinning threads use up the quota, and then all threads are suspended.
    """
    requested = torch.get_num_threads()
    return requested if requested == 1 else min(requested, available())


def threads_for(work: int, grain: int) -> int:
    """The number of threads for a number of multiplications.

    Under CPU contention a thread may have to wait until the time slice of another process ends. Work that takes less
    than a time slice is then finished earlier by the threads that already run.

    Args:
        work: the number of multiplications.
        grain: the number of multiplications per thread below which another thread costs more than it saves.
    """
    if work <= grain:
        return 1
    return min(threads(), -(-work // (max(grain, TIME_SLICE_WORK) if contention else grain)))


def thread_setting() -> tuple[int, bool]:
    """The state on which `threads_for` depends for large calls. A prepared large call is valid for one state."""
    # As in `threads` and `Contention.__bool__`, with fewer function calls.
    requested, now = torch.get_num_threads(), monotonic()
    if requested > 1:
        requested = min(requested, _affinity(), _limit.cached if now < _limit.expiry else _limit.processors())
    return requested, now < contention.until


def available() -> int:
    """The number of processors that the caller may use, by its affinity and the limits of its control groups."""
    return min(_affinity(), _limit.processors())


class Contention:
    """Whether threads recently waited for each other, which happens when other processes use their processors."""

    def __init__(self) -> None:
        self.until, self._duration = 0.0, CONTENTION_SECONDS[0]

    def __bool__(self) -> bool:
        return monotonic() < self.until

    def note(self, waited: bool) -> None:
        """Record whether threads waited. The assumed duration doubles after a wait and halves otherwise."""
        shortest, longest = CONTENTION_SECONDS
        if waited:
            self.until = monotonic() + self._duration
            self._duration = min(2 * self._duration, longest)
        else:
            self._duration = max(self._duration / 2, shortest)


class Limit:
    """The processor time that the control groups (cgroups) of this process permit.

    Args:
        limits: returns the limits of the groups that contain the process, in seconds of processor time per second.

    Attributes:
        cached: the limit; see `processors`.
        expiry: the time until which it is valid.
    """

    def __init__(self, limits: Callable[[], Iterable[float]] = SYSTEM.processor_limits) -> None:
        self._limits, self.expiry, self.cached = limits, 0.0, 0

    def processors(self) -> int:
        """The smallest limit as a number of processors, rounded, at least 1. Without limits it is `os.cpu_count()`."""
        now = monotonic()
        if now >= self.expiry:
            smallest = min(self._limits(), default=os.cpu_count() or 1)
            self.cached, self.expiry = max(1, int(smallest + 0.5)), now + LIMIT_SECONDS
        return self.cached


_affinity = SYSTEM.processor_counter()
_limit = Limit()
contention = Contention()
