"""Classification: one label for a whole text or series of numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from glassgate.tasks.classification.network import Classifier, Scores
from glassgate.tasks.classification.options import ClassificationOptions
from glassgate.tasks.data import labelled as labelled_files
from glassgate.tasks.data import records, texts
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.number_labels import scale
from glassgate.tasks.data.raw_text import RawText, note_on_unsegmented, raw_text_like, starts_of
from glassgate.tasks.data.store.examples import LINE, SEQUENCE, SYMBOL, counts, store
from glassgate.tasks.data.toy import python_packages
from glassgate.tasks.data.unknown_labels import UNLABELLED
from glassgate.tasks.data.vocabulary import PADDING, Vocabulary
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.loss import Loss, Mean, full
from glassgate.tasks.metrics.confusion import LabelSummary
from glassgate.tasks.pictures.attention import Attended
from glassgate.tasks.predictions import Record, tokens_of
from glassgate.tasks.progress import Progress
from glassgate.tasks.task import Split, Task, Vocabularies
from glassgate.tasks.wording import plural

if TYPE_CHECKING:
    from torchmetrics import MetricCollection


class Answer(NamedTuple):
    """A prediction.

    Attributes:
        label: the most probable label
        probabilities: the probability of each label
        attention: the weight of each step, with pooling "attention"; None otherwise
    """

    label: str
    probabilities: dict[str, float]
    attention: list[float] | None


class Classification(Task[ClassificationOptions, Labelled, Answer]):
    """Find the label of a text or a series.

    Example:
        >>> rows = [Labelled("such a fine day", "good"), Labelled("such a foul day", "bad")]
        >>> task = Classification(ClassificationOptions(hidden_size=8, epochs=20, learning_rate=0.1, least_count=1))
        >>> _ = task.fit(Split(rows))
        >>> task.predict([Labelled("a fine day")])[0].label
        'good'
    """

    name = "classification"
    options_type = ClassificationOptions
    monitor = "macro_f1"
    padding = {"units": PADDING, "series": 0, "label": UNLABELLED}
    targets = {"label": "labels"}
    target_field = "label"
    summary_type = LabelSummary
    builtin_try_next = ('predict {run} - <<< "task = loop.create_task(reader.read())"',)
    builtin_options = {"hidden_size": 64, "pooling": "max", "dropout": 0.3, "epochs": 4}

    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Labelled]:
        options = self.options
        columns = (options.text_column, options.label_column)
        reader = labelled_files.Reader(path, options.format, *columns, options.missing, labelled)
        if reader.format in (*labelled_files.SERIES, "folder"):
            examples = list(reader)
            self._report(path, reader, examples, labelled, progress)
            return examples
        unsegmented: list[int] = []

        def tokenised() -> Iterator[Labelled]:
            for each in reader:
                if self._is_unsegmented(each):
                    unsegmented.append(each.line or 0)
                yield replace(each, content=self._units(each))

        stored = store(
            tokenised(),
            {"content": SEQUENCE, "label": SYMBOL, "line": LINE},
            partial(Labelled, source=str(path)),
            [path],
            ["table", reader.format, *columns, labelled, options.unit, options.missing, reader.description],
            progress,
        )
        if unsegmented and progress is not None:
            progress.note(note_on_unsegmented(path, unsegmented))
        self._report(path, reader, stored, labelled, progress)
        return stored

    def _report(
        self,
        path: str | Path,
        reader: labelled_files.Reader,
        examples: Sequence[Labelled],
        labelled: bool,
        progress: Progress | None,
    ) -> None:
        """Report the format and the size of a file."""
        if progress is None or not (labelled or reader.dropped):
            return
        name = "series" if reader.format in labelled_files.SERIES else plural(len(examples), "text").split(" ", 1)[1]
        labels = plural(len(counts(examples, "label", lambda each: [each.label])), "label")
        dropped = f"; {plural(reader.dropped, 'row')} without text or label dropped" if reader.dropped else ""
        progress.note(f"{path}: {reader.description}; {len(examples):,} {name}, {labels}{dropped}")

    def from_rows(self, rows: Iterator[tuple[int, Any, records.Names]]) -> list[Labelled]:
        return labelled_files.of_rows(rows, self.options)

    def read_builtin(self) -> Split[Labelled]:
        train, held_out = python_packages.read()
        return Split(train, test=held_out)

    def collect(self, examples: Sequence[Labelled]) -> Vocabularies:
        label_counts = counts(examples, "label", lambda each: [each.label])
        labels = Vocabulary.of({label: count for label, count in label_counts.items() if label is not None})
        if len(labels.symbols) < 2:
            source = examples[0].source if examples else "given examples"
            raise DataError(
                source,
                None,
                f"expected at least 2 different labels, got {labels.symbols or 'none'}; "
                "add rows with another label, or choose another --label-column",
            )
        first = examples[0].content
        if not isinstance(first, np.ndarray):
            units = Vocabulary.of(counts(examples, "content", self._units), self.options.least_count)
            return {"labels": labels, "units": units}
        channels = first.shape[1]
        mean, deviation = scale(np.concatenate([self._series(each, channels) for each in examples]))
        self.facts = {"mean": mean, "deviation": deviation}
        return {"labels": labels}

    def build(self) -> "Classifier":
        units = len(self.vocabularies["units"]) if "units" in self.vocabularies else None
        size = len(self.facts["mean"]) if self.facts else self.options.embedding_size
        return Classifier(self.options, units, size, len(self.vocabularies["labels"].symbols))

    def encode(self, example: Labelled) -> Encoded:
        fields: dict[str, np.ndarray] = {}
        if "units" in self.vocabularies:
            fields["units"] = self.vocabularies["units"].encode(self._units(example))
        else:
            mean, deviation = np.array(self.facts["mean"]), np.array(self.facts["deviation"])
            fields["series"] = ((self._series(example, len(mean)) - mean) / deviation).astype(np.float32)
        if example.label is not None:
            fields["label"] = self.label_numbers("labels", [example.label])[0]
        return fields

    def loss(self, output: Scores, batch: Batch) -> Loss:
        label = batch["label"]
        known = label < output.labels.shape[-1]
        return [Mean.of(F.cross_entropy(full(output.labels[known]), label[known], reduction="none"))]

    def metrics(self) -> "MetricCollection":
        from torchmetrics import MetricCollection
        from torchmetrics.classification import MulticlassAccuracy

        from glassgate.tasks.metrics.scores import MacroF1

        labels = self.label_names("labels")
        accuracy = MulticlassAccuracy(len(labels), average="micro")
        return MetricCollection({"accuracy": accuracy, "macro_f1": MacroF1(labels)})

    def observe(self, output: Scores, batch: Batch) -> dict[str, Tensor]:
        return {"preds": output.labels.argmax(-1), "target": batch["label"]}

    def decode(self, output: Scores, batch: Batch) -> list[Answer]:
        symbols = self.vocabularies["labels"].symbols
        answers = []
        for row, (probabilities, length) in enumerate(
            zip(output.labels.float().softmax(-1).tolist(), batch["lengths"].tolist(), strict=True)
        ):
            weights = None if output.attention is None else output.attention[row, :length].tolist()
            best = symbols[max(range(len(symbols)), key=probabilities.__getitem__)]
            answers.append(Answer(best, dict(zip(symbols, probabilities, strict=True)), weights))
        return answers

    def text(self, example: Labelled, prediction: Answer) -> str:
        """Return the label and its probability; with attention also each token, or step, with its weight."""
        words = [prediction.label, f"{prediction.probabilities[prediction.label]:.4f}"]
        if prediction.attention is not None:
            pairs = zip(self.steps(example), prediction.attention, strict=True)
            words.append(" ".join(f"{step}:{weight:.3f}" for step, weight in pairs))
        return "\t".join(words)

    def record(self, example: Labelled, prediction: Answer) -> Record:
        """Return the label, the probabilities of all labels and, with attention, the weight of each token or step."""
        record: Record = {"label": prediction.label, "probability": prediction.probabilities[prediction.label]}
        record["probabilities"] = prediction.probabilities
        if isinstance(example.content, np.ndarray):
            return record | ({} if prediction.attention is None else {"attention": prediction.attention})
        units = self._units(example)
        raw = example.content if isinstance(example.content, str) else None
        text, tokens = tokens_of(units, () if raw is None else starts_of(units, raw))
        for token, weight in zip(tokens, prediction.attention or (), strict=False):
            token["weight"] = weight
        return {"text": raw or text, **record, "tokens": tokens}

    def attend(self, example: Labelled) -> Attended:
        """Return the weight of each token, or step, in the decision, with pooling "attention"."""
        (answer,) = self.predict([example])
        if answer.attention is None:
            raise OptionError(
                f"pooling: expected a run with attention, got {self.options.pooling}; train with --pooling attention"
            )
        return Attended(self.steps(example), [answer.label], np.array([answer.attention]))

    def steps(self, example: Labelled) -> list[str]:
        """Return the tokens of a text, or the numbers of a series' steps from 1."""
        if isinstance(example.content, np.ndarray):
            return [str(step) for step in range(1, len(example.content) + 1)]
        return list(self._units(example))

    def _units(self, example: Labelled) -> Sequence[str]:
        content = example.content
        if isinstance(content, np.ndarray):
            raise DataError(
                example.source, example.line, "expected a text, as in training, got a series; give a file of texts"
            )
        units = texts.split(content, self.options.unit) if isinstance(content, str) else content
        if (raw := self._raw_text(example)) is not None:
            units = raw.refined(units)
        if not units:
            raise DataError(example.source, example.line, "the text is empty; remove it")
        return units

    def _raw_text(self, example: Labelled) -> RawText | None:
        """The tokeniser of raw text without a label, if the run reads words; None otherwise."""
        known = vars(self).get("vocabularies", {}).get("units")
        if example.label is not None or known is None or self.options.unit not in ("word", "token"):
            return None
        return raw_text_like(known) if isinstance(example.content, str) else None

    def _is_unsegmented(self, example: Labelled) -> bool:
        raw = self._raw_text(example)
        return raw is not None and isinstance(example.content, str) and raw.is_unsegmented(example.content)

    def _series(self, example: Labelled, channels: int) -> np.ndarray:
        content = example.content
        got = f"{content.shape[-1]}" if isinstance(content, np.ndarray) else "a text"
        if not isinstance(content, np.ndarray) or content.shape[-1] != channels:
            raise DataError(
                example.source,
                example.line,
                f"expected a series of {channels} channels, as in training, got {got}; use data with the same channels",
            )
        return content
