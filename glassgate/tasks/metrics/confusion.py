"""Which labels a model takes for which: the confusion matrix of a task whose vocabulary has labels."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchmetrics.classification import MulticlassConfusionMatrix

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.metrics.scores import alone
from glassgate.tasks.pictures.charts import confusion_picture, has_pictures
from glassgate.tasks.runs import write
from glassgate.tasks.task import Task


def labels_of(task: Task[Any, Any, Any]) -> list[str]:
    """The labels of the training data, and one name for all that other data has besides."""
    return [*task.vocabularies["labels"].symbols, *(["not in training"] if "labels" in task.unseen else ())]


def matrix(task: Task[Any, Any, Any], encoded: Sequence[Encoded]) -> list[list[int]]:
    """Count how often each label was given, a column, for each true one, a row; in the order of `labels_of`."""
    count = len(labels_of(task))
    counts = MulticlassConfusionMatrix(count, distributed_available_fn=alone)
    for output, batch, _ in task.outputs(encoded):
        observed = task.observe(output, batch)
        labelled = observed["target"] >= 0
        counts.update(observed["preds"][labelled].cpu(), observed["target"][labelled].cpu().clamp(max=count - 1))
    rows: list[list[int]] = counts.compute().tolist()
    return rows


def report(task: Task[Any, Any, Any], encoded: Sequence[Encoded], folder: Path) -> list[Path]:
    """Write the matrix as JSON, and as a picture where matplotlib is installed; return the files."""
    labels, counts = labels_of(task), matrix(task, encoded)
    files = [folder / "confusion.json"]
    write(files[0], json.dumps({"labels": labels, "counts": counts}, ensure_ascii=False).encode())
    if has_pictures():
        files.append(folder / "confusion.png")
        confusion_picture(counts, labels, files[1])
    return files
