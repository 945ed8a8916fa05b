"""The confusion matrix of a task whose vocabulary has labels."""

import json
from collections.abc import Sequence
from pathlib import Path

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.metrics.summary import Summary
from glassgate.tasks.pictures.charts import confusion_picture, has_matplotlib
from glassgate.tasks.runs import write


class LabelSummary(Summary):
    """`confusion.json` and, if matplotlib is installed, `confusion.png`."""

    def labels(self) -> list[str]:
        """Return the labels of the training data, and one name for all unknown labels."""
        return [
            *self.task.vocabularies["labels"].symbols,
            *(["not in training"] if "labels" in self.task.unknown_labels else ()),
        ]

    def matrix(self, encoded: Sequence[Encoded]) -> list[list[int]]:
        """Return counts with a row per true label and a column per predicted label, in the order of `labels`."""
        from torchmetrics.classification import MulticlassConfusionMatrix

        from glassgate.tasks.metrics.scores import alone

        count = len(self.labels())
        counts = MulticlassConfusionMatrix(count, distributed_available_fn=alone)
        for output, batch, _ in self.task.outputs(encoded):
            observed = self.task.observe(output, batch)
            labelled = observed["target"] >= 0
            counts.update(observed["preds"][labelled].cpu(), observed["target"][labelled].cpu().clamp(max=count - 1))
        rows: list[list[int]] = counts.compute().tolist()
        return rows

    def write(self, encoded: Sequence[Encoded], folder: Path) -> list[Path]:
        labels, counts = self.labels(), self.matrix(encoded)
        files = [folder / "confusion.json"]
        write(files[0], json.dumps({"labels": labels, "counts": counts}, ensure_ascii=False).encode())
        if has_matplotlib():
            files.append(folder / "confusion.png")
            confusion_picture(counts, labels, files[1])
        return files
