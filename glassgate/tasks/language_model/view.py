"""Examples and answers of language models, for the report."""

from collections.abc import Sequence

from torch import Tensor

from glassgate.glass.languages import say
from glassgate.glass.study import Answer, Choice
from glassgate.tasks.data import texts
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.texts import Text
from glassgate.tasks.data.vocabulary import UNKNOWN
from glassgate.tasks.language_model.music import Roll, parse_roll
from glassgate.tasks.language_model.task import NOTES, LanguageModel, notes_of, surprise
from glassgate.tasks.report.task_view import AnswerGroup, BatchAnswers, TaskView, answers_of, visible


class View(TaskView[LanguageModel]):
    """One answer per step: the next token, or the next notes."""

    def example(self, text: str) -> Text | Roll:
        """Convert a text to an example; for music, each line of MIDI numbers is a step."""
        token_kind = self.task.options.tokens
        return parse_roll(text) if token_kind == NOTES else Text(texts.split(text, token_kind))

    def answers(self, output: Tensor, batch: Batch) -> BatchAnswers:
        """Return the prediction of each token; for music, the notes of each step whose probability exceeds 0.5."""
        targets, length = batch["targets"], output.shape[1]
        if self.task.options.tokens != NOTES:
            names = [say("answers.unknown"), *map(visible, self.task.vocabularies["units"].symbols)]
            return answers_of(output.log_softmax(-1), names, targets - UNKNOWN, range(length))
        predicted, nats = output.detach() > 0, surprise(output, targets)
        rows = zip(
            predicted[0].cpu(), surprise(output, predicted)[0].detach(), targets[0].cpu(), nats[0].detach(), strict=True
        )
        answers = [
            Answer(
                step,
                (Choice(notes_of(notes.numpy()), float((-notes_nats).exp())),),
                Choice(notes_of(target.numpy()), float((-target_nats).exp())),
                float(2 * (notes & (target > 0)).sum() / max(1, int(notes.sum() + (target > 0).sum()))),
            )
            for step, (notes, notes_nats, target, target_nats) in enumerate(rows)
        ]
        control_nats = surprise(output, targets.roll(length // 2, 1))
        group, scores = AnswerGroup.of_losses(nats, control_nats), (output * predicted).sum(-1)
        evidence_name, score = say("quantity.of_notes"), say("quantity.sum_of_notes")
        return BatchAnswers(answers, -nats, evidence_name, (group,), scores, score_name=score)

    def steps(self, example: Text | Roll) -> Sequence[str]:
        """Return the input of each step: a start sign, then the token or the notes of the previous step."""
        if isinstance(example, Roll):
            return [say("answers.start"), *(notes_of(step) for step in example.steps[:-1])]
        return ["\N{BLACK RIGHT-POINTING SMALL TRIANGLE}", *example.tokens[:-1]]
