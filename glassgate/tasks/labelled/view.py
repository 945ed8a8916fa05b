"""Examples and answers of classification and regression, for the report."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from glassgate.glass.languages import say
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.labelled.network import Output
from glassgate.tasks.labelled.task import LabelledTask
from glassgate.tasks.loss import to_float
from glassgate.tasks.report.task_view import AnswerGroup, BatchAnswers, TaskView, answers_of, number_answers


class View(TaskView[LabelledTask[Any, Any]]):
    """One answer for the whole text or series: its label, or several numbers."""

    def example(self, text: str) -> Labelled:
        return super().example(text) if self.task.series_scale else Labelled(text)

    def steps(self, example: Labelled) -> Sequence[str]:
        return self.task.steps(example)

    def series(self, example: Labelled) -> np.ndarray | None:
        return example.content if isinstance(example.content, np.ndarray) else None

    def attention(self, example: Labelled) -> np.ndarray | None:
        return self.task.attend(example).weights if self.task.pooling == "attention" else None

    def answers(self, output: Output, batch: Batch) -> BatchAnswers:
        if self.task.predicts_numbers:
            return self._number_answers(output.values, batch.get("numbers"))
        target = batch["label"][:, None] if "label" in batch else None
        log_probabilities = output.values.log_softmax(-1)[:, None]
        return answers_of(log_probabilities, self.task.vocabularies["labels"].symbols, target, [None])

    def _number_answers(self, values: Tensor, target: Tensor | None) -> BatchAnswers:
        mean, deviation = (to_float(values).new_tensor(each) for each in self.task.fitted["numbers"])
        predicted = (to_float(values) * deviation + mean)[0].tolist()
        true_numbers = None if target is None else (to_float(target) * deviation + mean)[0].tolist()
        answers = number_answers(predicted, true_numbers, [None] * len(predicted))
        expected = values.detach()[:1].expand_as(values) if target is None else target.to(values.dtype)
        losses = F.smooth_l1_loss(values, expected, reduction="none")
        control_losses = F.smooth_l1_loss(values, expected.roll(1, 0), reduction="none")
        group = AnswerGroup.of_losses(losses, control_losses)
        name, unit = say("quantity.prediction"), say("quantity.loss_units")
        score = say("quantity.prediction_in_deviations")
        return BatchAnswers(answers, values, name, (group,), values, unit, score)
