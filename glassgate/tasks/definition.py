"""The interface that a task implements: data reader, network, loss, scores and predictions."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from torch import nn

from glassgate.tasks.data import records
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.data.batching import Batching
from glassgate.tasks.data.corpus import SEQUENCE, SYMBOL, Corpus
from glassgate.tasks.data.held_out import ByContent, Rule
from glassgate.tasks.data.lines import decoding
from glassgate.tasks.data.reading import NO_READING, Reading
from glassgate.tasks.data.vocabulary import FIRST, Vocabulary
from glassgate.tasks.errors import OptionError, UserError
from glassgate.tasks.loss import Loss
from glassgate.tasks.metrics.summary import Summary
from glassgate.tasks.options import Options
from glassgate.tasks.pictures.attention import AttentionWeights
from glassgate.tasks.predictions import Record
from glassgate.tasks.progress import Progress

# torchmetrics takes two seconds to load where scipy and matplotlib are installed; predictions do not need it.
if TYPE_CHECKING:
    from torchmetrics import MetricCollection

    from glassgate.tasks.baselines.baseline import Baseline

OptionsType = TypeVar("OptionsType", bound=Options)
Example = TypeVar("Example")
Prediction = TypeVar("Prediction")

Vocabularies = dict[str, Vocabulary]
_NO_SYMBOLS = Vocabulary([])


@dataclass(frozen=True)
class Split(Generic[Example]):
    """Training, validation and test examples."""

    train: Sequence[Example]
    dev: Sequence[Example] = ()
    test: Sequence[Example] = ()


class Definition(ABC, Generic[OptionsType, Example, Prediction]):
    """The definition of a task: reader, network, loss, scores and predictions.

    The methods from `read` to `text` are abstract, those from `as_corpus` to `baselines` are optional.

    Attributes:
        requested: the options as passed to the constructor; `fit` replaces a cell's file name by the cell
        options: `requested`, until `fit` adds the values that depend on the size of the data
        name: the name of the task on the command line
        purpose: a description of the task in a few words, for the help of the command line
        options_type: the dataclass of the options
        lower_is_better: whether a smaller `monitor` is better
        comparable_losses: whether the losses on dev and training data are comparable
        try_next: commands to suggest after training, with the placeholders {run} and {file}
        builtin_try_next: commands to suggest after training on built-in data, if they differ
        padding: the fields of an encoded example, and the padding value of each
        targets: the attributes of an example that are labels, each with the name of its vocabulary
        input_field: the field of an encoded example that contains the indices of the input tokens; in most
            tasks "units", which is also the name of the token vocabulary in stored runs
        target_field: the field that contains the indices of the targets; empty if the targets are not indices
        builtin_data: the built-in data in words; empty if there are none
        builtin_options: defaults that differ for built-in data
        summary_type: the class that formats the scores
        vocabularies: the symbols of the training data; set by `fit` and `load`
        reading: the reading of the training file, which `read` follows; set by `fit` and `load`
        unknown_labels: labels of dev and test data that the training data lacks, by the names of `vocabularies`
        warnings: sentences about the data, printed before training
        fitted: the other values computed from the training data, such as means and subwords, as JSON values; a run
            stores them
        network: the model; set by `fit` and `load`. States that continue from batch to batch are non-persistent
            buffers `(layers, N, H)`, listed in the attribute `carried` of the network: checkpoints contain them, the
            model file does not
    """

    name: ClassVar[str]
    purpose: ClassVar[str] = ""
    options_type: ClassVar[type[Options]]
    lower_is_better: ClassVar[bool] = False
    comparable_losses: ClassVar[bool] = True
    try_next: ClassVar[tuple[str, ...]] = ("evaluate {run} {file}", "predict {run} {file}")
    builtin_try_next: ClassVar[tuple[str, ...]] = ()
    padding: ClassVar[dict[str, int]]
    targets: ClassVar[dict[str, str]] = {}
    input_field: ClassVar[str] = "units"
    target_field: ClassVar[str] = ""
    builtin_data: ClassVar[str] = ""
    builtin_options: ClassVar[dict[str, Any]] = {}
    summary_type: ClassVar[type[Summary]] = Summary

    vocabularies: Vocabularies
    network: nn.Module

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name in {"examine", "read"} & {*vars(cls)}:
            setattr(cls, name, decoding(vars(cls)[name]))

    def __init__(self, options: OptionsType):
        self.options = self.requested = options
        self.fitted: dict[str, Any] = {}
        self.reading = NO_READING
        self.unknown_labels: Vocabularies = {}
        self.warnings: list[str] = []

    @property
    @abstractmethod
    def monitor(self) -> str:
        """The score that selects the best epoch; in most tasks a class attribute."""

    @abstractmethod
    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Example]:
        """Read the examples of a file; `progress` is notified while a large file is converted.

        The result depends only on the file, the options, `reading` and the vocabularies. Reading changes none of them.
        """

    @abstractmethod
    def collect(self, examples: Sequence[Example]) -> Vocabularies:
        """Return the vocabularies of training examples, and set `fitted` if the task needs more than these."""

    @abstractmethod
    def build(self) -> nn.Module:
        """Return a new network for the vocabularies. `loss`, `observe` and `decode` receive its output."""

    @abstractmethod
    def encode(self, example: Example) -> Encoded:
        """Return the fields of an example, as listed in `padding`; label fields only if the example has labels."""

    @abstractmethod
    def loss(self, output: Any, batch: Batch) -> Loss:
        """Return the loss as a list of means; the loss is their sum."""

    @abstractmethod
    def metrics(self) -> "MetricCollection":
        """Return new metrics; import torchmetrics inside this method, because it loads slowly."""

    @abstractmethod
    def observe(self, output: Any, batch: Batch) -> dict[str, Any]:
        """Return the arguments of the metrics' `update`."""

    @abstractmethod
    def decode(self, output: Any, batch: Batch) -> list[Prediction]:
        """Return a prediction for each row. If the task cuts sequences into pieces, predictions must be lists."""

    @abstractmethod
    def text(self, example: Example, prediction: Prediction) -> str:
        """Return a prediction as lines of text."""

    # Optional methods.

    def as_corpus(self, examples: Sequence[Example]) -> Corpus[Example]:
        """Convert a list of examples to a corpus: by default, it keeps the objects, next to columns of their labels."""
        labels = {name: getattr(examples[0], name) for name in self.targets if hasattr(examples[0], name)}
        kinds = {
            name: SYMBOL if label is None or isinstance(label, str) else SEQUENCE for name, label in labels.items()
        }
        return Corpus.of(examples, kinds)

    def examine(self, path: str | Path) -> Reading:
        """Return the choices that later files of a training on this file follow; none by default."""
        return NO_READING

    def follow(self, reading: Reading) -> None:
        """Follow the reading of a training file in `read`."""
        self.reading = reading

    def read_builtin(self) -> Split[Example]:
        """Return the built-in examples, for training without --data; by default, there are none."""
        raise OptionError(f"{self.name}: expected data to train on, got none; give a file with --data")

    def from_rows(self, rows: Iterator[tuple[int, Any, records.LabelNames]]) -> list[Example]:
        """Convert rows of a table to examples; by default, the task does not accept rows.

        Args:
            rows: the number of each row, its values by column, and the names of labels that are stored as integers
        """
        raise UserError(f"{self.name}: expected a Split of examples, got rows of a table; give a Split, or a file")

    @property
    def held_out_rule(self) -> Rule[Example]:
        """The rule that holds out dev and test examples; by default a hash of the attribute `content` of an example."""
        return ByContent(attrgetter("content"))

    def batching(self) -> Batching:
        """Return the batching: by default, sequences are not cut, and a batch has sequences of similar lengths."""
        return Batching(self.options)

    def start(self, progress: Progress) -> None:
        """Replace random initial values of the new network, for example by pretrained vectors."""

    def refine(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> str:
        """Change the weights of the best epoch after training, by a formula. Returns a note; empty without a change."""
        return ""

    def begin_step(self, done: float) -> None:
        """Change settings that follow a schedule, before a training step; `done` is the completed fraction."""

    def glance(self, output: Any, batch: Batch) -> dict[str, Any]:
        """Like `observe`, but cheaper, for the dev scores after each epoch."""
        return self.observe(output, batch)

    def record(self, example: Example, prediction: Prediction) -> Record:
        """Return a prediction as a JSON object; most tasks add probabilities and character offsets."""
        return {"prediction": self.text(example, prediction)}

    def attend(self, example: Example) -> AttentionWeights:
        """Return the attention weights of the steps of an example; an OptionError if the network has no attention."""
        raise OptionError(f"{self.name} has no attention to look at; translation and classification may have one")

    def baselines(self) -> "Sequence[Baseline]":
        """Return the simple models that a training compares with the network; none by default."""
        return ()

    # Services for tasks.

    def split(self, examples: Sequence[Example]) -> Split[Example]:
        """Hold out dev and test examples by `held_out_rule` and the option `held_out`; the seed has no influence."""
        return Split(*self.held_out_rule.split(self.corpus(examples), self.options.held_out))

    def corpus(self, examples: Sequence[Example]) -> Corpus[Example]:
        """Return examples as a corpus; a corpus is returned unchanged."""
        is_converted = isinstance(examples, Corpus) or not len(examples)
        return Corpus.of(examples) if is_converted else self.as_corpus(examples)

    @property
    def remedy(self) -> str:
        """The most likely remedy if a baseline is better than the network."""
        return "give more data, or use that model"

    @property
    def summary(self) -> Summary:
        """The object that formats the scores."""
        return self.summary_type(self)

    def label_names(self, name: str) -> list[str]:
        """Return the labels of a vocabulary in the order of their indices, followed by the unknown labels."""
        return [*self.vocabularies[name].symbols, *self.unknown_labels.get(name, _NO_SYMBOLS).symbols]

    def label_indices(self, name: str, labels: Sequence[str]) -> np.ndarray:
        """Return the indices of labels in `label_names`, `(L,)`; new labels are added to `unknown_labels`."""
        known = self.vocabularies[name]
        indices = known.encode(labels) - FIRST
        is_unknown = indices < 0
        if is_unknown.any():
            new = [labels[int(index)] for index in is_unknown.nonzero()[0]]
            earlier = self.unknown_labels.get(name, _NO_SYMBOLS).symbols
            unknown = self.unknown_labels[name] = Vocabulary([*earlier, *sorted({*new}.difference(earlier))])
            indices[is_unknown] = unknown.encode(new) - FIRST + len(known.symbols)
        return indices
