"""Formats the scores of a task: as a line, as a table, and as files of a run folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.pictures.charts import confusion_picture, has_matplotlib
from glassgate.tasks.runs import write


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


class LabelSummary(Summary):
    """Writes a confusion matrix as `confusion.json` and, if matplotlib is installed, `confusion.png`."""

    def labels(self) -> list[str]:
        """Return the labels of the training data, and one name for all unknown labels, if any."""
        unknown = ["not in training"] if "labels" in self.task.unknown_labels else []
        return [*self.task.vocabularies["labels"].symbols, *unknown]

    def matrix(self, encoded: Sequence[Encoded]) -> list[list[int]]:
        """Return the counts, with a row per true label and a column per predicted label, in the order of `labels`."""
        last = len(self.labels()) - 1  # all unknown labels share the last index
        counts = np.zeros((last + 1, last + 1), np.int64)
        for output, batch, _ in self.task.outputs(encoded):
            observed = self.task.observe(output, batch)
            preds, target = (observed[name].cpu().numpy().clip(max=last) for name in ("preds", "target"))
            np.add.at(counts, (target[target >= 0], preds[target >= 0]), 1)
        rows: list[list[int]] = counts.tolist()
        return rows

    def write(self, encoded: Sequence[Encoded], folder: Path) -> list[Path]:
        labels, counts = self.labels(), self.matrix(encoded)
        files = [folder / "confusion.json"]
        write(files[0], json.dumps({"labels": labels, "counts": counts}, ensure_ascii=False).encode())
        if has_matplotlib():
            files.append(folder / "confusion.png")
            confusion_picture(counts, labels, files[1])
        return files
