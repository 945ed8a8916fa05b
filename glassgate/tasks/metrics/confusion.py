"""The confusion matrix of a task that predicts labels."""

import json
from collections.abc import Sequence
from pathlib import Path

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.metrics.summary import Summary
from glassgate.tasks.pictures.charts import confusion_picture, has_matplotlib
from glassgate.tasks.runs import write


class LabelSummary(Summary):
    """Writes a confusion matrix as `confusion.json` and, if matplotlib is installed, `confusion.png`."""

    def labels(self) -> list[str]:
        """Return the labels of the training data, and one name for all unknown labels, if any."""
        return [
            *self.task.vocabularies["labels"].symbols,
            *(["not in training"] if "labels" in self.task.unknown_labels else ()),
        ]

    def matrix(self, encoded: Sequence[Encoded]) -> list[list[int]]:
        """Return the counts, with a row per true label and a column per predicted label, in the order of `labels`."""
        from torchmetrics.classification import MulticlassConfusionMatrix

        from glassgate.tasks.metrics.scores import not_distributed

        num_labels = len(self.labels())
        metric = MulticlassConfusionMatrix(num_labels, distributed_available_fn=not_distributed)
        for output, batch, _ in self.task.outputs(encoded):
            observed = self.task.observe(output, batch)
            mask = observed["target"] >= 0
            # All unknown labels share the last index.
            metric.update(observed["preds"][mask].cpu(), observed["target"][mask].cpu().clamp(max=num_labels - 1))
        counts: list[list[int]] = metric.compute().tolist()
        return counts

    def write(self, encoded: Sequence[Encoded], folder: Path) -> list[Path]:
        labels, counts = self.labels(), self.matrix(encoded)
        files = [folder / "confusion.json"]
        write(files[0], json.dumps({"labels": labels, "counts": counts}, ensure_ascii=False).encode())
        if has_matplotlib():
            files.append(folder / "confusion.png")
            confusion_picture(counts, labels, files[1])
        return files
