"""Runs launches on the thread pool of torch, or under CPU contention on the thread pool of this package."""

from collections.abc import Sequence

from glassgate.engines import processors
from glassgate.engines.llvm_cpu.pool import openmp, own
from glassgate.engines.llvm_cpu.tasks import Launch


def run(launches: Sequence[Launch]) -> None:
    """Run each launch on a thread, and wait until all are done. A single launch runs on the calling thread."""
    if len(launches) == 1:
        launches[0]()
    elif processors.contention or (was_late := openmp.run(launches)) is None:
        own.run(launches)
    else:
        processors.contention.note(was_late)
