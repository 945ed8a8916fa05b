"""The parts of a task: reading its data, its network, loss, scores and predictions."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from torch import nn

from glassgate.tasks.data import records
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.data.batching import Batching
from glassgate.tasks.data.held_out import hold_out
from glassgate.tasks.data.vocabulary import FIRST, Vocabulary
from glassgate.tasks.errors import OptionError, UserError
from glassgate.tasks.loss import Loss
from glassgate.tasks.metrics.summary import Summary
from glassgate.tasks.options import Options
from glassgate.tasks.pictures.attention import Attended
from glassgate.tasks.predictions import Record
from glassgate.tasks.progress import Progress

# torchmetrics takes two seconds to load where scipy and matplotlib are installed; predictions do not need it.
if TYPE_CHECKING:
    from torchmetrics import MetricCollection

OptionsType = TypeVar("OptionsType", bound=Options)
Example = TypeVar("Example")
Prediction = TypeVar("Prediction")

Vocabularies = dict[str, Vocabulary]


@dataclass(frozen=True)
class Split(Generic[Example]):
    """Training, validation and test examples."""

    train: Sequence[Example]
    dev: Sequence[Example] = ()
    test: Sequence[Example] = ()


class Definition(ABC, Generic[OptionsType, Example, Prediction]):
    """A reader, a network, a loss and scores, made from options.

    Nine methods are abstract, from `read` to `text`; nine are optional, from `read_own` to `attend`.

    Attributes:
        asked: the given options
        options: the same; from training on those left open are set by the size of the data
        name: on the command line
        options_type: its dataclass of options
        lower_is_better: whether a smaller `monitor` is better
        one_loss: whether the losses on dev and training data are comparable
        try_next: commands for a trained run, with {run} and {file} in them
        own_try_next: the same for a run without --data, if they differ
        padding: the fields of an encoded example, and the value that pads each
        targets: an example's attributes that are labels, and the vocabulary of each
        given_field: the field of an encoded example with the numbers of the input, unknown units included
        answer_field: the field with the numbers of the right answers; empty if they are not numbers
        own_options: defaults that differ without --data
        summary_type: the class that shows its scores
        vocabularies: the symbols of the training data, once it is read
        unseen: labels of other data that the training data lacks, by the names of `vocabularies`
        warnings: sentences about the data, printed before training
        facts: other results of `collect` that a run stores, as JSON values
        network: the model, once it is built; states that continue from batch to batch are buffers `(layers, N, H)`
            that are not persistent, with their names in its `carried`: checkpoints store them, the model file does not
    """

    name: ClassVar[str]
    options_type: ClassVar[type[Options]]
    lower_is_better: ClassVar[bool] = False
    one_loss: ClassVar[bool] = True
    try_next: ClassVar[tuple[str, ...]] = ("evaluate {run} {file}", "predict {run} {file}")
    own_try_next: ClassVar[tuple[str, ...]] = ()
    padding: ClassVar[dict[str, int]]
    targets: ClassVar[dict[str, str]] = {}
    given_field: ClassVar[str] = "units"
    answer_field: ClassVar[str] = ""
    own_options: ClassVar[dict[str, Any]] = {}
    summary_type: ClassVar[type[Summary]] = Summary

    vocabularies: Vocabularies
    network: nn.Module

    def __init__(self, options: OptionsType):
        self.options = self.asked = options
        self.facts: dict[str, Any] = {}
        self.unseen: Vocabularies = {}
        self.warnings: list[str] = []

    @property
    @abstractmethod
    def monitor(self) -> str:
        """The score that selects the best epoch; in most tasks a class attribute."""

    @abstractmethod
    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Example]:
        """Read a file of examples; `progress` receives the fraction done of a large one."""

    @abstractmethod
    def collect(self, examples: Sequence[Example]) -> Vocabularies:
        """Return the vocabularies of training examples."""

    @abstractmethod
    def build(self) -> nn.Module:
        """Return a new network for the vocabularies; its output is the argument of `loss`, `observe` and `decode`."""

    @abstractmethod
    def encode(self, example: Example) -> Encoded:
        """Turn an example into the fields of `padding`, those of its labels only where it has some."""

    @abstractmethod
    def loss(self, output: Any, batch: Batch) -> Loss:
        """Return the loss as a list of means whose sum it is."""

    @abstractmethod
    def metrics(self) -> "MetricCollection":
        """Return new metrics; torchmetrics is imported here, with the first score."""

    @abstractmethod
    def observe(self, output: Any, batch: Batch) -> dict[str, Any]:
        """Return the arguments of the metrics' `update`."""

    @abstractmethod
    def decode(self, output: Any, batch: Batch) -> list[Prediction]:
        """Return a prediction for each row; those of the pieces of a sequence are lists, which are joined."""

    @abstractmethod
    def text(self, example: Example, prediction: Prediction) -> str:
        """Return a prediction as lines of text."""

    # Optional methods.

    def read_own(self) -> Split[Example]:
        """Return examples that every machine has.

        Raises:
            OptionError: there are none
        """
        raise OptionError(f"{self.name}: expected data to train on, got none; give a file with --data")

    def of_rows(self, rows: Iterator[tuple[int, Any, records.Names]]) -> list[Example]:
        """Make examples of rows with named values, each with its number and the names of labels that are numbers.

        Raises:
            UserError: the task takes no rows
        """
        raise UserError(f"{self.name}: expected a Split of examples, got rows of a table; give those, or a file")

    def hold_out(self, examples: Sequence[Example], fraction: float) -> Split[Example]:
        """Split the examples of --data, if neither --dev nor --test is given: the same parts for every seed."""
        return Split(*hold_out(examples, fraction))

    def batching(self) -> Batching:
        """Return how examples are batched: sequences of similar length together, none of them cut."""
        return Batching(self.options)

    def start(self, progress: Progress) -> None:
        """Give the new network initial values other than random ones."""

    def begin_step(self, done: float) -> None:
        """Prepare for a training step; `done` is the fraction of the training that is done."""

    def glance(self, output: Any, batch: Batch) -> dict[str, Any]:
        """Return the same as `observe` for the scores between epochs, faster if possible."""
        return self.observe(output, batch)

    def record(self, example: Example, prediction: Prediction) -> Record:
        """Return a prediction as a JSON object with probabilities and character offsets."""
        return {"prediction": self.text(example, prediction)}

    def attend(self, example: Example) -> Attended:
        """Return the attention of the network to the steps of an example.

        Raises:
            OptionError: it has no attention
        """
        raise OptionError(f"{self.name} has no attention to look at; translation and classification may have one")

    # Services for tasks.

    @property
    def summary(self) -> Summary:
        """How its scores are shown."""
        return self.summary_type(self)

    def answers(self, name: str) -> list[str]:
        """Return the labels of a vocabulary in the order of their numbers, then those that training lacked."""
        return [*self.vocabularies[name].symbols, *(self.unseen[name].symbols if name in self.unseen else ())]

    def numbered(self, name: str, labels: Sequence[str]) -> np.ndarray:
        """Number labels from 0, `(L,)`: those of a vocabulary, then those that training lacked."""
        known = self.vocabularies[name]
        numbers = known.encode(labels) - FIRST
        if (numbers < 0).any():
            new = [labels[int(place)] for place in (numbers < 0).nonzero()[0]]
            before = self.unseen[name].symbols if name in self.unseen else []
            unseen = self.unseen[name] = Vocabulary([*before, *sorted({*new}.difference(before))])
            numbers[numbers < 0] = unseen.encode(new) - FIRST + len(known.symbols)
        return numbers
