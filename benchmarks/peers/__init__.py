"""The programs that are compared, one module each. `prepare(work)` returns a `Subject` with `run()` and `results()`.

Only the module of a peer imports its library, in a separate process (worker.py).
"""

from typing import Any, Protocol


class Subject(Protocol):
    """A prepared work."""

    def run(self) -> Any:
        """Compute the work; this is measured, and returns when the results are complete."""

    def results(self) -> dict[str, Any]:
        """Return every output and gradient as an array, by the names of `peers.layer`; empty if nothing is checked."""
