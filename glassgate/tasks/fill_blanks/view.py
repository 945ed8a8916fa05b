"""Examples and answers of filling blanks, for the report."""

from glassgate.glass.languages import say
from glassgate.tasks.data import texts
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.texts import Text
from glassgate.tasks.data.vocabulary import UNKNOWN
from glassgate.tasks.fill_blanks.network import BlankScores
from glassgate.tasks.fill_blanks.task import FillBlanks
from glassgate.tasks.report.task_view import BatchAnswers, TaskView, answers_of, visible


class View(TaskView[FillBlanks]):
    """One answer per token, which is treated as a blank."""

    def example(self, text: str) -> Text:
        return Text(texts.split(text, self.task.options.tokens))

    def answers(self, output: BlankScores, batch: Batch) -> BatchAnswers:
        names = [say("answers.unknown"), *map(visible, self.task.vocabularies["units"].symbols)]
        targets = batch["units"] - UNKNOWN
        return answers_of(output.token_scores.log_softmax(-1), names, targets, range(targets.shape[1]))
