"""Examples and answers of tagging, for the report."""

from tokenize import TokenError

import torch

from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.raw_text import raw_tokeniser, starts_of
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.toy import python_code
from glassgate.tasks.report.answers import BatchAnswers, answers_of
from glassgate.tasks.report.questions import Questions
from glassgate.tasks.tagging.network import Scores
from glassgate.tasks.tagging.task import Tagging


class TaggingQuestions(Questions[Tagging]):
    """One answer per token, and the intent."""

    def example(self, text: str) -> Tagged:
        """Return the example of a text, split as in the training data. Python code that can be parsed has labels."""
        task = self.task
        if task.options.format == "python":
            try:
                return python_code.label(text)
            except (SyntaxError, TokenError):
                return Tagged(text, None)
        raw = raw_tokeniser(task.vocabularies["units"])
        if raw.is_character_level:
            return Tagged(text, None)
        units = raw.split(text)
        return Tagged(units, None, starts=starts_of(units, text))

    def answers(self, output: Scores, batch: Batch) -> BatchAnswers:
        """Return each token's label, and the intent. Label transitions (a CRF) are not applied to the scores."""
        vocabularies, steps = self.task.vocabularies, range(output.labels.shape[1])
        labels = answers_of(output.labels.log_softmax(-1), vocabularies["labels"].symbols, batch.get("labels"), steps)
        if output.intents is None:
            return labels
        intent = batch["intent"][:, None] if "intent" in batch else None
        names = vocabularies["intents"].symbols
        whole = answers_of(output.intents.log_softmax(-1)[:, None], names, intent, [None])
        evidence = torch.cat([labels.evidence, whole.evidence], 1)
        scores = torch.cat([labels.scores, whole.scores], 1)
        return BatchAnswers(
            [*labels.answers, *whole.answers], evidence, labels.evidence_name, (*labels.groups, *whole.groups), scores
        )
