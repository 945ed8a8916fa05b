"""Classification: predict one label for a text or a series of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.baselines.features import Constant, OnFeatures, logistic_regression, nearest_neighbour, one_hot
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.data.labelled import Labelled, LabelledOptions
from glassgate.tasks.data.raw_text import starts_of
from glassgate.tasks.data.toy.python_code import package_lines
from glassgate.tasks.data.vocabulary import FIRST, Vocabulary
from glassgate.tasks.errors import OptionError
from glassgate.tasks.labelled.network import POOLINGS, Output
from glassgate.tasks.labelled.task import LabelledTask
from glassgate.tasks.loss import Loss, Mean, cross_entropy
from glassgate.tasks.metrics.summary import LabelSummary
from glassgate.tasks.networks.ridge import MAX_EXAMPLES
from glassgate.tasks.options import Options, option, override
from glassgate.tasks.pictures.attention import AttentionWeights
from glassgate.tasks.predictions import Record, token_records
from glassgate.tasks.task import Split, Vocabularies

if TYPE_CHECKING:
    from torchmetrics import MetricCollection


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions(LabelledOptions):
    """The options of classification."""

    common: ClassVar = (*Options.common, "label_column", "pooling")

    data: str | None = override("data", None, if_unset="Python's library")
    pooling: str = option("concat", "how the states of all steps are combined", choices=POOLINGS)


class Answer(NamedTuple):
    """A prediction.

    Attributes:
        label: the most probable label
        probabilities: the probability of each label
        attention: the weight of each token or step, with attention pooling; None otherwise
    """

    label: str
    probabilities: dict[str, float]
    attention: list[float] | None


class Classification(LabelledTask[ClassificationOptions, Answer]):
    """Predict the label of a text or a series.

    Example:
        >>> rows = [Labelled("such a fine day", "good"), Labelled("such a foul day", "bad")]
        >>> task = Classification(ClassificationOptions(hidden_size=8, epochs=20, learning_rate=0.1, least_count=1))
        >>> _ = task.fit(Split(rows))
        >>> task.predict([Labelled("a fine day")])[0].label
        'good'
    """

    name = "classification"
    purpose = "find the label of a text or of a series"
    options_type = ClassificationOptions
    monitor = "macro_f1"
    targets = {"label": "labels"}
    target_field = "label"
    summary_type = LabelSummary
    builtin_try_next = ('predict {run} - <<< "task = loop.create_task(reader.read())"',)
    builtin_data = "Python's standard library"
    builtin_options = {"hidden_size": 64, "pooling": "max", "dropout": 0.3, "epochs": 4}

    def read_builtin(self) -> Split[Labelled]:
        train, held_out = package_lines()
        return Split(train, test=held_out)

    def collect(self, examples: Sequence[Labelled]) -> Vocabularies:
        corpus = self.corpus(examples)
        labels = Vocabulary.of_labels(corpus.counts("label"), examples[0].source)
        self.fitted = {}
        self.vocabularies = {"labels": labels, **self.collect_inputs(corpus)}
        # Weights of attention would explain less of the answer if a regression gave most of it.
        if self.options.pooling != "attention" and len(corpus) <= MAX_EXAMPLES:
            indices = labels.encode([str(each.label) for each in corpus]) - FIRST
            self.fit_map(corpus, np.eye(len(labels.symbols))[indices])
        return self.vocabularies

    def encode(self, example: Labelled) -> Encoded:
        fields = self.encode_input(example)
        if example.label is not None:
            fields["label"] = self.label_indices("labels", [example.label])[0]
        return fields

    def loss(self, output: Output, batch: Batch) -> Loss:
        return [Mean.of(*cross_entropy(output.values, batch["label"]))]

    def metrics(self) -> "MetricCollection":
        from torchmetrics import MetricCollection

        from glassgate.tasks.metrics.scores import Accuracy, MacroF1

        return MetricCollection({"accuracy": Accuracy(), "macro_f1": MacroF1(self.label_names("labels"))})

    def observe(self, output: Output, batch: Batch) -> dict[str, Tensor]:
        return {"preds": output.values.argmax(-1), "target": batch["label"]}

    def decode(self, output: Output, batch: Batch) -> list[Answer]:
        symbols = self.vocabularies["labels"].symbols
        answers = []
        for row, (probabilities, length) in enumerate(
            zip(output.values.float().softmax(-1).tolist(), batch["lengths"].tolist(), strict=True)
        ):
            weights = None if output.attention is None else output.attention[row, :length].tolist()
            best = symbols[max(range(len(symbols)), key=probabilities.__getitem__)]
            answers.append(Answer(best, dict(zip(symbols, probabilities, strict=True)), weights))
        return answers

    @property
    def pooling(self) -> str:
        return self.options.pooling

    @property
    def remedy(self) -> str:
        return "try --pooling concat" if self.options.pooling == "last" else super().remedy

    def baselines(self) -> Sequence[Baseline]:
        count = len(self.vocabularies["labels"].symbols)

        def output(labels: np.ndarray) -> Output:
            return Output(one_hot(labels, count))

        baselines: list[Baseline] = [
            Constant(self, "most frequent label", lambda labels: np.bincount(labels).argmax(), "label", output),
            OnFeatures(self, "logistic regression on {}", logistic_regression, "label", output),
        ]
        if self.series_scale is not None:
            baselines.append(OnFeatures(self, "1-nearest neighbour", nearest_neighbour, "label", output))
        return baselines

    def text(self, example: Labelled, prediction: Answer) -> str:
        """Return the label and its probability; with attention pooling also each token or step with its weight."""
        columns = [prediction.label, f"{prediction.probabilities[prediction.label]:.4f}"]
        if prediction.attention is not None:
            pairs = zip(self.steps(example), prediction.attention, strict=True)
            columns.append(" ".join(f"{step}:{weight:.3f}" for step, weight in pairs))
        return "\t".join(columns)

    def record(self, example: Labelled, prediction: Answer) -> Record:
        """Return the label, the probabilities of all labels and, with attention pooling, the weights of the steps."""
        record: Record = {"label": prediction.label, "probability": prediction.probabilities[prediction.label]}
        record["probabilities"] = prediction.probabilities
        if isinstance(example.content, np.ndarray):
            return record | ({} if prediction.attention is None else {"attention": prediction.attention})
        tokens, text = self.tokens(example), self.raw_text(example)
        are_bytes = self.options.tokens == "byte"  # offsets then count bytes
        _, records = token_records(tokens, range(len(tokens)) if are_bytes else starts_of(tokens, text))
        for token_record, weight in zip(records, prediction.attention or (), strict=False):
            token_record["weight"] = weight
        return {"text": text, **record, "tokens": records}

    def attend(self, example: Labelled) -> AttentionWeights:
        """Return the weight of each token or step in the pooled output.

        Raises:
            OptionError: the run has no attention pooling
        """
        (answer,) = self.predict([example])
        if answer.attention is None:
            raise OptionError(
                f"pooling: expected a run with attention, got {self.options.pooling}; train with --pooling attention"
            )
        return AttentionWeights(self.steps(example), [answer.label], np.array([answer.attention]))
