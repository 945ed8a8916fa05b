"""Which threads run launches: torch's own, or ours while other processes keep the processors busy."""

import time
from collections.abc import Sequence

from glassgate.engines.numba_cpu.launch import Launch
from glassgate.engines.numba_cpu.pool import openmp, own

CONTENDED_FOR = (0.1, 8.0)
"""Seconds for which threads do not wait for each other after they had to: at least, and at most."""


class Contention:
    """Remembers that threads had to wait for each other, as they do when other processes have their cores."""

    def __init__(self) -> None:
        self._until, self._pause = 0.0, CONTENDED_FOR[0]

    def __bool__(self) -> bool:
        return time.monotonic() < self._until

    def note(self, waited: bool) -> None:
        """See whether they had to; each time they had, the next try comes later."""
        if waited:
            self._until = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, CONTENDED_FOR[1])
        else:
            self._pause = max(self._pause / 2, CONTENDED_FOR[0])


contention = Contention()


def run(launches: Sequence[Launch]) -> None:
    """Run all launches, each on its own thread, the first one on the caller's; return when all are done."""
    if len(launches) == 1:
        launches[0]()
    elif contention or (late := openmp.run(launches)) is None:
        own.run(launches)
    else:
        contention.note(late)
