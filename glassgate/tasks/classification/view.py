"""Examples and answers of classification, for the report."""

import numpy as np

from glassgate.tasks.classification.network import Scores
from glassgate.tasks.classification.task import Classification
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.report.answers import BatchAnswers, answers_of
from glassgate.tasks.report.task_view import LabelledView


class View(LabelledView[Classification]):
    """One answer for the whole text or series."""

    def answers(self, output: Scores, batch: Batch) -> BatchAnswers:
        target = batch["label"][:, None] if "label" in batch else None
        log_probabilities = output.labels.log_softmax(-1)[:, None]
        return answers_of(log_probabilities, self.task.vocabularies["labels"].symbols, target, [None])

    def attention(self, example: Labelled) -> np.ndarray | None:
        return self.task.attend(example).weights if self.task.options.pooling == "attention" else None
