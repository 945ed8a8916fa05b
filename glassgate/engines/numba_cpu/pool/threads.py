"""The choice of threads for launches: torch's own, or ours under CPU contention."""

from collections.abc import Sequence

from glassgate.engines import processors
from glassgate.engines.numba_cpu.launch import Launch
from glassgate.engines.numba_cpu.pool import openmp, own


def run(launches: Sequence[Launch]) -> None:
    """Run all launches, each on its own thread, the first on the thread of the caller. Return when all are done."""
    if len(launches) == 1:
        launches[0]()
    elif processors.contention or (late := openmp.run(launches)) is None:
        own.run(launches)
    else:
        processors.contention.note(late)
