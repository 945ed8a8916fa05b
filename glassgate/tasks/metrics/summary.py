"""How the scores of a task are shown: in a line, in a table, and as files of a run folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glassgate.tasks.data.batches import Encoded


class Summary:
    """Scores in one line and without files, for tasks to override.

    Args:
        task: with its options, vocabularies and network
    """

    def __init__(self, task: Any):
        self.task = task

    def brief(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Return the scores that the line of an epoch shows."""
        return dict(scores)

    def table(self, scores: Mapping[str, float]) -> str:
        """Return scores as a table; empty if one line shows them well."""
        return ""

    def signatures(self) -> dict[str, str]:
        """Return the exact definition of some of the scores, so that others can compare theirs."""
        return {}

    def write(self, encoded: Sequence[Encoded], folder: Path) -> list[Path]:
        """Write further results on encoded examples to a folder, and return the files."""
        return []
