"""Who computes a work, one module each: `prepare(work)` gives a subject that can `run()` and, checked, `results()`.

A peer's library is imported by its own module alone, in a process of its own (worker.py).
"""

from typing import Any, Protocol


class Subject(Protocol):
    """A work made ready."""

    def run(self) -> Any:
        """What is timed; blocks until the numbers are there."""

    def results(self) -> dict[str, Any]:
        """Every output and gradient as an array, by the names of `peers.layer`; empty where nothing is checked."""
