"""What a task defines: how its data is read, its network, its loss, its scores, and what its answers look like."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from torch import nn
from torchmetrics import MetricCollection

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

OptionsType = TypeVar("OptionsType", bound=Options)
Example = TypeVar("Example")
Prediction = TypeVar("Prediction")

Vocabularies = dict[str, Vocabulary]


@dataclass(frozen=True)
class Split(Generic[Example]):
    """Examples to train on, to tell the best epoch by, and to measure the result by."""

    train: Sequence[Example]
    dev: Sequence[Example] = ()
    test: Sequence[Example] = ()


class Definition(ABC, Generic[OptionsType, Example, Prediction]):
    """An encoder of recurrent layers, a head, a loss, scores and a reader, made from options.

    Attributes:
        asked: the options as they were given
        options: the same, from training on with what the size of the data decides
        name: what the command line calls it
        options_type: its dataclass of options
        lower_is_better: whether a smaller one is better
        one_loss: whether the loss on dev data means what it means in training, so that their curves may be compared
        try_next: what to do with a trained run, as words of the command line with {run} and {file} in them
        own_try_next: the same for a run that was given no data, if it is something else
        padding: the fields of an encoded example, and the value that pads each
        targets: an example's attributes that are labels, and the vocabulary of each
        given_field: the field of an encoded example that numbers what is given, a vocabulary's unknown ones among it
        answer_field: the field that numbers the right answers; empty where they are no numbers
        own_options: what differs from the options' defaults when no data is given
        summary_type: the class that shows its scores
        vocabularies: the symbols met in training, once there are any
        unseen: labels that other data has and the training data lacked, by the names of `vocabularies`
        warnings: what is to be said of the data of a training
        facts: what else `collect` learns from the training examples and a run keeps, as JSON holds it
        network: the model, once there is one; what its batches hand on to the next in training, it keeps in buffers
            that are not persistent, `(layers, N, H)`, whose names are its `carried`: checkpoints hold them, the saved
            model does not
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
    def summary(self) -> Summary:
        """How its scores are shown."""
        return self.summary_type(self)

    def answers(self, name: str) -> list[str]:
        """Return the labels of a vocabulary in the order of their numbers, those that training lacked at the end."""
        return [*self.vocabularies[name].symbols, *(self.unseen[name].symbols if name in self.unseen else ())]

    def numbered(self, name: str, labels: Sequence[str]) -> np.ndarray:
        """Number labels from 0, `(L,)`: those of a vocabulary, and behind them those that training lacked."""
        known = self.vocabularies[name]
        numbers = known.encode(labels) - FIRST
        if (numbers < 0).any():
            new = [labels[int(place)] for place in (numbers < 0).nonzero()[0]]
            before = self.unseen[name].symbols if name in self.unseen else []
            unseen = self.unseen[name] = Vocabulary([*before, *sorted({*new}.difference(before))])
            numbers[numbers < 0] = unseen.encode(new) - FIRST + len(known.symbols)
        return numbers

    @property
    @abstractmethod
    def monitor(self) -> str:
        """The score that selects the best epoch; in most tasks a class attribute."""

    def start(self, progress: Progress) -> None:
        """Give the new network what training starts from, if that is more than random values."""

    @abstractmethod
    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Example]:
        """Read a file of examples; `progress` is called with how far a large one is."""

    def read_own(self) -> Split[Example]:
        """Return examples that every machine has.

        Raises:
            OptionError: there are none
        """
        raise OptionError(f"{self.name}: expected data to train on, got none; give a file with --data")

    def hold_out(self, examples: Sequence[Example], fraction: float) -> Split[Example]:
        """Split the examples of --data, if neither --dev nor --test is given: the same parts for every seed."""
        return Split(*hold_out(examples, fraction))

    def batching(self) -> Batching:
        """Return how examples are batched: sequences of similar length together, none of them cut."""
        return Batching(self.options)

    @abstractmethod
    def collect(self, examples: Sequence[Example]) -> Vocabularies:
        """Return the vocabularies of training examples."""

    @abstractmethod
    def build(self) -> nn.Module:
        """Return a new network for the vocabularies: from a batch to what `loss`, `observe` and `decode` take."""

    @abstractmethod
    def encode(self, example: Example) -> Encoded:
        """Turn an example into the fields of `padding`, those of its labels only where it has some."""

    @abstractmethod
    def loss(self, output: Any, batch: Batch) -> Loss:
        """Return the loss as the means that it is the sum of."""

    @abstractmethod
    def metrics(self) -> MetricCollection:
        """Return the scores, unset."""

    @abstractmethod
    def observe(self, output: Any, batch: Batch) -> dict[str, Any]:
        """Return what the metrics' `update` takes."""

    def glance(self, output: Any, batch: Batch) -> dict[str, Any]:
        """Return the same for the scores between epochs, in a quicker way where there is one."""
        return self.observe(output, batch)

    def begin_step(self, done: float) -> None:
        """Prepare for a step of training, so much of which is done, from 0 to 1."""

    @abstractmethod
    def text(self, example: Example, prediction: Prediction) -> str:
        """Return a prediction as lines of text."""

    def record(self, example: Example, prediction: Prediction) -> Record:
        """Return a prediction as a JSON object: probabilities, and character offsets of what has a place in a text."""
        return {"prediction": self.text(example, prediction)}

    @abstractmethod
    def decode(self, output: Any, batch: Batch) -> list[Prediction]:
        """Return a prediction for each row; those of a sequence in pieces are lists, and joined."""

    def of_rows(self, rows: Iterator[tuple[int, Any, records.Names]]) -> list[Example]:
        """Make examples of rows with named values, each with its number and the names of labels that are numbers.

        Raises:
            UserError: the task takes no rows
        """
        raise UserError(f"{self.name}: expected a Split of examples, got rows of a table; give those, or a file")

    def attend(self, example: Example) -> Attended:
        """Return where the network looks at an example.

        Raises:
            OptionError: it has no attention
        """
        raise OptionError(f"{self.name} has no attention to look at; translation and classification may have one")
