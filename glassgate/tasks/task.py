"""What all tasks share: `fit`, `evaluate`, `predict`, `save`, `load`; a task adds its data, network and scores."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from glassgate.tasks.attention import Attended
from glassgate.tasks.data import keyed
from glassgate.tasks.data.batches import (
    Batch,
    Batches,
    Encoded,
    EncodedLater,
    Lengths,
    Loader,
    Piece,
    lengths,
    shuffled,
    whole,
)
from glassgate.tasks.data.stored import Stored
from glassgate.tasks.data.vocabulary import Vocabulary
from glassgate.tasks.errors import OptionError, RunError, UserError
from glassgate.tasks.options import Options
from glassgate.tasks.progress import Progress
from glassgate.tasks.runs import Run, damaged, not_known_here
from glassgate.tasks.seen import Seen, Shown
from glassgate.tasks.training import check_device, computed, train

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


class Task(ABC, Generic[OptionsType, Example, Prediction]):
    """An encoder of recurrent layers, a head, a loss, scores and a reader, made from options.

    Attributes:
        name: what the command line calls it
        options_type: its dataclass of options
        lower_is_better: whether less of it is better
        one_loss: whether the loss on dev data means what it means in training, so that their curves may be compared
        try_next: what to do with a trained run, as words of the command line with {run} and {file} in them
        own_try_next: the same for a run that was given no data, if it is something else
        padding: the fields of an encoded example, and the value that pads each
        targets: an example's attributes whose symbols must be known, and the vocabulary of each
        given_field: the field of an encoded example that numbers what is given, a vocabulary's unknown ones among it
        answer_field: the field that numbers the right answers; empty where they are no numbers
        own_options: what differs from the options' defaults when no data is given
        vocabularies: the symbols met in training, once there are any
        facts: what else `collect` learns from the training examples and a run keeps, as JSON holds it
        network: the model, once there is one; what its batches hand on to the next in training, it keeps in buffers
            that are not persistent: checkpoints hold them, the saved model does not
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

    vocabularies: Vocabularies
    network: nn.Module

    def __init__(self, options: OptionsType):
        self.options = options
        self.facts: dict[str, Any] = {}

    @property
    def longest_piece(self) -> int:
        """Units of the pieces that training cuts longer sequences into; 0 to cut none."""
        return 0

    def training_batches(self, lengths: Lengths, epoch: int) -> Batches:
        """Return the batches of an epoch, counted from 0: a function of options, lengths and epoch alone."""
        options = self.options
        return shuffled(lengths, options.batch_size, self.longest_piece, options.seed, epoch)

    def evaluation_batches(self, lengths: Lengths) -> Batches:
        """Return the batches in which examples are scored and predicted."""
        return whole(lengths, self.options.batch_size)

    def units_of_an_epoch(self, lengths: Lengths) -> int:
        """Return how many units the batches of an epoch hold together."""
        return int(np.sum(lengths, dtype=np.int64))

    @property
    @abstractmethod
    def monitor(self) -> str:
        """The score that decides which epoch is best."""

    def start(self, progress: Progress) -> None:
        """Give the new network what training starts from, if that is more than random values."""

    @abstractmethod
    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Example]:
        """Read a file of examples; `progress` is called with how far a large one is."""

    @abstractmethod
    def read_own(self) -> Split[Example]:
        """Return examples that every machine has."""

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
    def loss(self, output: Any, batch: Batch) -> Tensor:
        """Return the mean loss, a scalar."""

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

    def signatures(self) -> dict[str, str]:
        """Return for some of the scores how exactly they are counted, for others to compare theirs with."""
        return {}

    @abstractmethod
    def text(self, example: Example, prediction: Prediction) -> str:
        """Return a prediction as lines of text."""

    @abstractmethod
    def decode(self, output: Any, batch: Batch) -> list[Prediction]:
        """Return a prediction for each row; those of a sequence in pieces are lists, and joined."""

    def see(self, output: Any, batch: Batch) -> Seen:
        """Return the answers that the report shows of a batch, whose rows are alike: see `tasks.seen`.

        Raises:
            UserError: the task has none to show
        """
        raise UserError(f"report: there is none for {self.name} yet")

    def attention(self, example: Example) -> np.ndarray | None:
        """Return where each answer of the report looks, `(A, L)`; None of a network without attention."""
        return None

    def steps(self, example: Example) -> Sequence[str]:
        """Return what each step of the recurrent layers reads, as text."""
        return list(getattr(example, "units"))  # noqa: B009

    def series(self, example: Example) -> np.ndarray | None:
        """Return the numbers `(L, C)` that the steps read, where they are no text."""
        return None

    def stretch(self, example: Example, usual: tuple[int, int]) -> tuple[int, int]:
        """Return which units of a long example the report shows; `usual` is a telling stretch."""
        return usual

    def shown(self, example: Example, start: int, stop: int) -> Shown:
        """Return what the recurrent layers read of a stretch."""
        series = self.series(example)
        return Shown(self.steps(example)[start:stop], None if series is None else series[start:stop])

    def look(self, network: nn.Module, batch: Batch) -> Any:
        """Run a network so that its layer `encoder` reads what the report shows in its first call."""
        return network(batch)

    def of_text(self, text: str) -> Example:
        """Make an example of a text.

        Raises:
            UserError: the task reads no text
        """
        raise UserError(f"report: a run of {self.name} reads no text; give a file with --file, or nothing")

    def read_split(self, progress: Progress) -> Split[Example]:
        """Read the files that the options name, or what every machine has if they name none.

        Raises:
            OptionError: a dev or test file without training data
            DataError: a file that cannot be used
        """
        progress.reading()
        paths, train = self.options, self.options.training_file
        if train is None:
            if paths.dev or paths.test:
                raise OptionError("--dev and --test go with --data; give the file to train on, too")
            return self.read_own()
        return Split(*(self.read(path, progress=progress) if path else [] for path in (train, paths.dev, paths.test)))

    def fit(
        self, split: Split[Example] | Any = None, *, run: str | Path | None = None, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Train from the start.

        Args:
            split: the examples; or a pandas frame, a `datasets.Dataset` or a `DatasetDict` of Hugging Face with rows
                that the options name columns of; read as the options say if None
            run: a new folder for model, checkpoint, configuration and scores; None to keep the model in memory alone
            progress: told how it goes

        Returns:
            what metrics.json holds: the scores on dev and test, each epoch's, and the speed

        Raises:
            UserError: data, options or folder cannot be used
            Interrupted: Ctrl-C; the run can be resumed
        """
        progress = progress or Progress()
        check_device(self.options)
        if run is not None:
            Run.check_new(run)
        split = self.read_split(progress) if split is None else self._split_of(split)
        if not len(split.train):
            raise UserError(f"{self.name}: expected examples to train on, got none")
        self.vocabularies = self.collect(split.train)
        encoded = self._encode_split(split)
        threads = self.options.threads or torch.get_num_threads()
        fingerprints = {name: _fingerprint(part) for name, part in encoded.items()}
        content = self._content() | {"data": fingerprints, "threads": threads}
        folder = Run.create(run, content) if run is not None else None
        return self._train(encoded, threads, folder, progress)

    def of_rows(self, rows: Iterator[tuple[int, Any, keyed.Names]]) -> list[Example]:
        """Make examples of rows with named values, each with its number and the names of labels that are numbers.

        Raises:
            UserError: the task takes no rows
        """
        raise UserError(f"{self.name}: expected a Split of examples, got rows of a table; give those, or a file")

    def _split_of(self, given: Any) -> Split[Example]:
        if isinstance(given, Split):
            return given
        rows = {name: self.of_rows(keyed.rows_of(part)) for name, part in keyed.parts(given).items()}
        return Split(**rows)

    @classmethod
    def resume(
        cls, run: str | Path, split: Split[Example] | Any = None, *, progress: Progress | None = None
    ) -> tuple[Self, dict[str, Any]]:
        """Go on with an interrupted run, to the same weights that it would have reached without a break.

        Args:
            run: the folder that `fit` was given
            split: the examples that `fit` was given; read again as the options say if None
            progress: told how it goes

        Returns:
            the task, trained, and what `fit` returns

        Raises:
            RunError: no such run, one that has ended, or the data has changed since it began
            Interrupted: Ctrl-C; the run can be resumed again
        """
        progress = progress or Progress()
        folder = Run.open(run)
        folder.check_unfinished()
        task = cls._from_content(folder)
        check_device(task.options)
        encoded = task._encode_split(task.read_split(progress) if split is None else task._split_of(split))
        for name, part in encoded.items():
            if folder.content["data"].get(name) != _fingerprint(part):
                raise RunError(
                    f"{folder.path}: the {name} data is not what it was when the run began; "
                    "restore the file, or train again"
                )
        return task, task._train(encoded, folder.content["threads"], folder, progress)

    def evaluate(self, examples: Sequence[Example]) -> dict[str, float]:
        """Return the scores on labelled examples."""
        return self.score(self.encoded(examples))

    def score(self, encoded: Sequence[Encoded], quickly: bool = False) -> dict[str, float]:
        """Return the scores on encoded examples.

        Args:
            quickly: whether as between epochs; see `glance`
        """
        observe = self.glance if quickly else self.observe
        metrics = self.metrics().to(next(self.network.parameters()).device)
        for output, batch, _ in self.outputs(encoded):
            metrics.update(**observe(output, batch))
        return computed(metrics)

    def predict(self, examples: Sequence[Example]) -> list[Prediction]:
        """Return a prediction for each example, in their order."""
        encoded = self.encoded(examples)
        parts: list[dict[int, Any]] = [{} for _ in examples]
        for output, batch, pieces in self.outputs(encoded):
            for piece, part in zip(pieces, self.decode(output, batch), strict=True):
                if len(piece):
                    parts[piece.index][piece.start] = part
        return [_joined([each[start] for start in sorted(each)]) for each in parts]

    def table(self, scores: Mapping[str, float]) -> str:
        """Return scores as a table, where one line does not show them well; empty for one line."""
        return ""

    def brief(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Return the scores that the line of an epoch shows."""
        return dict(scores)

    def attend(self, example: Example) -> Attended:
        """Return where the network looks at an example.

        Raises:
            OptionError: it has no attention
        """
        raise OptionError(f"{self.name} has no attention to look at; translation and classification may have one")

    def report(self, encoded: Sequence[Encoded], folder: Path) -> list[Path]:
        """Write what is worth seeing beside the scores of encoded examples into a folder, and return the files."""
        return []

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` and the command line read, on any machine.

        Raises:
            RunError: the folder holds files already
        """
        Run.create(folder, self._content()).save_model(self.network.state_dict())

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a folder that `save` or training wrote.

        Raises:
            RunError: the folder is missing, half-written, damaged, of a newer version or of another task
        """
        run = Run.open(folder)
        task = cls._from_content(run)
        with _made_of(run):
            task.network = task.build()
        task._load_weights(run)
        return task

    def _load_weights(self, run: Run) -> None:
        try:
            self.network.load_state_dict(run.load_model())
        except RuntimeError as error:
            raise RunError(
                f"{run.path}: the weights do not fit the options saved beside them; copy the folder again, or train "
                f"again: {' '.join(str(error).split())}"
            ) from None

    def _train(
        self, encoded: dict[str, Sequence[Encoded]], threads: int, folder: Run | None, progress: Progress
    ) -> dict[str, Any]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with torch.random.fork_rng(), _in_memory(self.options):
                torch.manual_seed(self.options.seed)
                self.network = self.build()
                self.start(progress)
                return train(self, encoded, folder, progress)
        finally:
            torch.set_num_threads(before)

    def _content(self) -> dict[str, Any]:
        symbols = {name: vocabulary.symbols for name, vocabulary in self.vocabularies.items()}
        return {
            "task": self.name,
            "options": self.options.to_mapping(),
            "vocabularies": symbols,
            "facts": self.facts,
        }

    @classmethod
    def _from_content(cls, run: Run) -> Self:
        if run.content["task"] != cls.name:
            raise RunError(f"{run.path}: expected a run of {cls.name}, got one of {run.content['task']}")
        try:
            task = cls(cls.options_type.from_mapping(run.content["options"]))  # type: ignore[arg-type]
        except OptionError as error:
            raise not_known_here(run.path, error) from None
        task.vocabularies = {name: Vocabulary(symbols) for name, symbols in run.content["vocabularies"].items()}
        task.facts = run.content["facts"]
        return task

    def encoded(self, examples: Sequence[Example]) -> Sequence[Encoded]:
        """Encode examples; stored ones when they are asked for, but see now that they can be.

        Raises:
            DataError: an example that cannot be encoded
        """
        if not isinstance(examples, Stored):
            return [self.encode(example) for example in examples]
        for field, name in self.targets.items():
            if field in examples.fields and name in self.vocabularies:
                place = examples.first_without(field, self.vocabularies[name].__contains__)
                if place is not None:
                    self.encode(examples[place])
        return EncodedLater(examples, self.encode)

    def _encode_split(self, split: Split[Example]) -> dict[str, Sequence[Encoded]]:
        return {name: self.encoded(getattr(split, name)) for name in ("train", "dev", "test")}

    @torch.inference_mode()
    def outputs(
        self, encoded: Sequence[Encoded], batches: Batches | None = None
    ) -> Iterator[tuple[Any, Batch, list[Piece]]]:
        """Yield the network's output for each batch, the batch, and the pieces that are its rows.

        Args:
            encoded: the encoded examples
            batches: those of evaluation if None
        """
        batches = self.evaluation_batches(lengths(encoded)) if batches is None else batches
        device = next(self.network.parameters()).device
        self.network.eval()
        for pieces, batch in zip(batches, Loader(encoded, batches, self.padding), strict=True):
            batch = {name: tensor.to(device) for name, tensor in batch.items()}
            yield self.network(batch), batch, pieces


@contextmanager
def _made_of(run: Run) -> Iterator[None]:
    """Say of which run no network can be made."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise error if isinstance(error, UserError) else damaged(run.path, error) from None


@contextmanager
def _in_memory(options: Options) -> Iterator[None]:
    """Say what to make smaller where memory is too little."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error)):
            raise
        why = next(iter(str(error).splitlines()), "it is full")
        raise UserError(
            f"the network or a batch does not fit into memory ({why}); choose a smaller --hidden-size than "
            f"{options.hidden_size}, or a smaller --batch-size than {options.batch_size}"
        ) from None


def _joined(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))


def _fingerprint(encoded: Sequence[Encoded]) -> str:
    if isinstance(encoded, EncodedLater) and encoded.examples.digest:
        return encoded.examples.digest
    digest = hashlib.blake2b(digest_size=16)
    for fields in encoded:
        for name in sorted(fields):
            digest.update(f"{name}{fields[name].shape}".encode())
            digest.update(fields[name].tobytes())
    return digest.hexdigest()
