"""Examples and answers of translation, for the report."""

from collections.abc import Sequence

import numpy as np

from glassgate.glass.languages import say
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.vocabulary import UNKNOWN
from glassgate.tasks.report.task_view import BatchAnswers, TaskView, answers_of, visible
from glassgate.tasks.translation.network import Output
from glassgate.tasks.translation.task import Translation


class View(TaskView[Translation]):
    """One answer per token of the target, given the tokens before it."""

    uses_own_prediction = True

    def example(self, text: str) -> Pair:
        """Return a pair: the text as the source, and its translation by this run as the target."""
        return Pair(self.task.insert_blanks(text), self.task.translate([text])[0])

    def answers(self, output: Output, batch: Batch) -> BatchAnswers:
        assert output.scores is not None
        names = [
            say("answers.unknown"),
            say("answers.end"),
            *map(visible, self.task.vocabularies["target"].symbols[1:]),
        ]
        log_probabilities, targets = output.scores.log_softmax(-1), batch["target"] - UNKNOWN
        return answers_of(log_probabilities, names, targets, [None] * targets.shape[1])

    def attention(self, example: Pair) -> np.ndarray | None:
        return None if self.task.options.attention == "none" else self.task.attend(example).weights

    def steps(self, example: Pair) -> Sequence[str]:
        return self.task.source_tokens(example)
