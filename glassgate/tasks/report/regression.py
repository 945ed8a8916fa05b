"""Examples and answers of regression, for the report."""

from collections.abc import Sequence

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.loss import full
from glassgate.tasks.regression.task import Regression
from glassgate.tasks.report.answers import Answer, AnswerGroup, BatchAnswers, Choice
from glassgate.tasks.report.questions import Questions


class RegressionQuestions(Questions[Regression]):
    """The numbers of a text or a series."""

    def example(self, text: str) -> Labelled:
        return super().example(text) if self.task.series_scale else Labelled(text)

    def answers(self, output: Tensor, batch: Batch) -> BatchAnswers:
        mean, deviation = (full(output).new_tensor(each) for each in self.task.fitted["numbers"][:2])
        target = batch.get("numbers")
        predicted = (full(output) * deviation + mean)[0].tolist()
        right = [None] * len(predicted) if target is None else (full(target) * deviation + mean)[0].tolist()
        answers = [
            Answer(None, (Choice(f"{number:.5g}", None),), None if truth is None else Choice(f"{truth:.5g}", None))
            for number, truth in zip(predicted, right, strict=True)
        ]
        expected = output.detach()[:1].expand_as(output) if target is None else target.to(output.dtype)
        losses = F.smooth_l1_loss(output, expected, reduction="none")
        others = F.smooth_l1_loss(output, expected.roll(1, 0), reduction="none")
        group, score = AnswerGroup.of_losses(losses, others), "prediction, in standard deviations of the training data"
        return BatchAnswers(answers, output, "the prediction", (group,), output, "in the loss's own units", score)

    def steps(self, example: Labelled) -> Sequence[str]:
        if isinstance(example.content, np.ndarray):
            return [", ".join(f"{value:.3g}" for value in row) for row in example.content]
        return list(self.task.tokens(example))
