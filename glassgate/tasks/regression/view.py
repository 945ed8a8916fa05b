"""Examples and answers of regression, for the report."""

import torch.nn.functional as F
from torch import Tensor

from glassgate.glass.languages import say
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.loss import to_float
from glassgate.tasks.regression.task import Regression
from glassgate.tasks.report.answers import AnswerGroup, BatchAnswers, number_answers
from glassgate.tasks.report.task_view import LabelledView


class View(LabelledView[Regression]):
    """The numbers of a text or a series."""

    def answers(self, output: Tensor, batch: Batch) -> BatchAnswers:
        mean, deviation = (to_float(output).new_tensor(each) for each in self.task.fitted["numbers"][:2])
        target = batch.get("numbers")
        predicted = (to_float(output) * deviation + mean)[0].tolist()
        true_numbers = None if target is None else (to_float(target) * deviation + mean)[0].tolist()
        answers = number_answers(predicted, true_numbers, [None] * len(predicted))
        expected = output.detach()[:1].expand_as(output) if target is None else target.to(output.dtype)
        losses = F.smooth_l1_loss(output, expected, reduction="none")
        control_losses = F.smooth_l1_loss(output, expected.roll(1, 0), reduction="none")
        group = AnswerGroup.of_losses(losses, control_losses)
        name, unit, score = (
            say("quantity.prediction"),
            say("quantity.loss_units"),
            say("quantity.prediction_in_deviations"),
        )
        return BatchAnswers(answers, output, name, (group,), output, unit, score)
