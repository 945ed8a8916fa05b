"""Examples and answers of tagging, for the report."""

from tokenize import TokenError

import torch

from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.raw_text import raw_tokeniser, starts_of
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.toy import python_code
from glassgate.tasks.report.task_view import BatchAnswers, TaskView, answers_of
from glassgate.tasks.tagging.network import Scores
from glassgate.tasks.tagging.task import Tagging


class View(TaskView[Tagging]):
    """One answer per token, and one for the intent."""

    def example(self, text: str) -> Tagged:
        """Return the example of a text, split as in the training data. Python code is labelled if it can be parsed."""
        task = self.task
        if task.options.format == "python":
            try:
                return python_code.label(text)
            except (SyntaxError, TokenError):
                return Tagged(text, None)
        tokeniser = raw_tokeniser(task.vocabularies["units"])
        if tokeniser.is_character_level:
            return Tagged(text, None)
        tokens = tokeniser.split(text)
        return Tagged(tokens, None, starts=starts_of(tokens, text))

    def answers(self, output: Scores, batch: Batch) -> BatchAnswers:
        """Return the label of each token, and the intent. The scores do not include transitions between labels."""
        vocabularies, steps = self.task.vocabularies, range(output.labels.shape[1])
        labels = answers_of(output.labels.log_softmax(-1), vocabularies["labels"].symbols, batch.get("labels"), steps)
        if output.intents is None:
            return labels
        intent = batch["intent"][:, None] if "intent" in batch else None
        names = vocabularies["intents"].symbols
        intent_answers = answers_of(output.intents.log_softmax(-1)[:, None], names, intent, [None])
        evidence = torch.cat([labels.evidence, intent_answers.evidence], 1)
        scores = torch.cat([labels.scores, intent_answers.scores], 1)
        answers, groups = [*labels.answers, *intent_answers.answers], (*labels.groups, *intent_answers.groups)
        return BatchAnswers(answers, evidence, labels.evidence_name, groups, scores)
