"""The peers, the programs that are compared. Each is a module whose function `prepare(workload)` returns a `Subject`.

A peer runs in its own process (worker.py), which imports only the module of this peer.
"""

from typing import Any, Protocol


class Subject(Protocol):
    """A workload that a peer has prepared."""

    def run(self) -> Any:
        """Compute the workload, and return when the results are complete. The time of this call is measured."""

    def results(self) -> dict[str, Any]:
        """Return every output and gradient by the names of `peers.layer`; empty if nothing is checked."""
