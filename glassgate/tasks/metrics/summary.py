"""Formats the scores of a task: as a line, as a table, and as files of a run folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glassgate.tasks.data.batches import Encoded


class Summary:
    """Selects and formats scores. Subclasses for tasks add tables and files.

    Args:
        task: the task, with its options, vocabularies and network
    """

    def __init__(self, task: Any):
        self.task = task

    def epoch_scores(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Return the scores to show after each epoch."""
        return dict(scores)

    def table(self, scores: Mapping[str, float]) -> str:
        """Return scores as a table; empty if one line is enough."""
        return ""

    def signatures(self) -> dict[str, str]:
        """Return the signature of each score by name. A signature states how the score is computed, as in sacrebleu."""
        return {}

    def write(self, encoded: Sequence[Encoded], folder: Path) -> list[Path]:
        """Write further results, such as a confusion matrix, to a folder, and return the paths of the files."""
        return []
