"""Examples and answers of classification, for the report."""

from collections.abc import Sequence

import numpy as np

from glassgate.tasks.classification.network import Scores
from glassgate.tasks.classification.task import Classification
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.report.answers import BatchAnswers, answers_of
from glassgate.tasks.report.questions import Questions


class ClassificationQuestions(Questions[Classification]):
    """One answer for the whole text or series."""

    def example(self, text: str) -> Labelled:
        return super().example(text) if self.task.series_scale else Labelled(text)

    def answers(self, output: Scores, batch: Batch) -> BatchAnswers:
        target = batch["label"][:, None] if "label" in batch else None
        log_probabilities = output.labels.log_softmax(-1)[:, None]
        return answers_of(log_probabilities, self.task.vocabularies["labels"].symbols, target, [None])

    def attention(self, example: Labelled) -> np.ndarray | None:
        return self.task.attend(example).weights if self.task.options.pooling == "attention" else None

    def steps(self, example: Labelled) -> Sequence[str]:
        return self.task.steps(example)

    def series(self, example: Labelled) -> np.ndarray | None:
        return example.content if isinstance(example.content, np.ndarray) else None
