"""The methods that all tasks share, `fit`, `evaluate`, `predict`, `save`, `load`; a task adds its `Definition`."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Self

import torch

import glassgate as gg
from glassgate.tasks import cells
from glassgate.tasks.data import records
from glassgate.tasks.data.batches import (
    Batch,
    Batches,
    Encoded,
    EncodedLater,
    Lengths,
    Piece,
    lengths,
)
from glassgate.tasks.data.store.examples import Stored
from glassgate.tasks.data.unknown_labels import lacking, said_of
from glassgate.tasks.data.vocabulary import Vocabulary
from glassgate.tasks.definition import Definition, Example, OptionsType, Prediction, Split, Vocabularies
from glassgate.tasks.errors import OptionError, RunError, UserError
from glassgate.tasks.options import Options
from glassgate.tasks.progress import Progress
from glassgate.tasks.runs import Run, damaged, not_known_here
from glassgate.tasks.training.by_size import by_size
from glassgate.tasks.training.devices import check_device
from glassgate.tasks.training.loop import train
from glassgate.tasks.training.processes.group import Group, group
from glassgate.tasks.training.processes.same_data import fingerprints
from glassgate.tasks.training.rate_finder import Found, find_rate
from glassgate.tasks.training.scoring import outputs, score
from glassgate.tasks.wording import plural

_LONGER = 4  # times the epochs chosen by the size of the data are the bound while the dev score improves

__all__ = ["Split", "Task", "Vocabularies"]


class Task(Definition[OptionsType, Example, Prediction]):
    """A task that can be trained and used: its definition, with `fit`, `evaluate`, `predict`, `save` and `load`."""

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
        if not (paths.dev or paths.test):
            return self.hold_out(self.read(train, progress=progress), paths.held_out)
        return Split(*(self.read(path, progress=progress) if path else [] for path in (train, paths.dev, paths.test)))

    def fit(
        self, split: Split[Example] | Any = None, *, run: str | Path | None = None, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Train from the start; where torchrun or SLURM has started several processes of a program, in all of them.

        Args:
            split: the examples; or a pandas frame, a `datasets.Dataset` or a `DatasetDict` of Hugging Face with rows
                that the options name columns of; read as the options say if None
            run: a new folder for model, checkpoint, configuration and scores; None to keep the model in memory alone
            progress: receives the reports

        Returns:
            what metrics.json holds: the scores on dev and test, each epoch's, and the speed

        Raises:
            UserError: data, options or folder cannot be used
            Interrupted: Ctrl-C; the run can be resumed
        """
        processes = group()
        with processes.of_a_training() as leads:
            progress = progress if progress and leads else Progress()
            with processes.together():
                check_device(self.options, processes.world)
                if run is not None and leads:
                    Run.check_new(run)
                if isinstance(self.options.cell, str) and self.options.cell not in cells.CELLS:
                    self.options = self.asked = replace(self.options, cell=cells.from_file(self.options.cell))
                split = self.read_split(progress) if split is None else self.split_of(split)
                if not len(split.train):
                    raise UserError(f"{self.name}: expected examples to train on, got none")
                self.vocabularies = self.collect(split.train)
            self._take(processes.first(self._content()))
            with processes.together():
                encoded = self.encode_split(split)
                self.options = self.sized(lengths(encoded["train"]))
                check_device(self.options, processes.world)
            threads = self.options.threads or torch.get_num_threads()
            found = self._find_rate(encoded["train"], threads, processes) if self.options.lr_find else None
            progress.note(self._plan(lengths(encoded["train"]), found))
            content = self._content() | {"data": fingerprints(encoded, processes), "threads": threads}
            content |= {"processes": processes.size} if processes.size > 1 else {}
            with processes.together():
                folder = Run.create(run, content) if run is not None and leads else None
                if folder and found:
                    found.draw(folder.path, progress)
            return self._train(encoded, threads, folder, progress, processes)

    def sized(self, train: Lengths) -> OptionsType:
        """Return the options; those left open are set by the size of the training data.

        Args:
            train: the tokens of each training sequence
        """
        asked = self.asked
        size = by_size(self.batching().examples(train), asked.batch_size, asked.epochs)
        rate = asked.rate_for(size.batch_size)
        most = asked.max_epochs or (0 if asked.epochs else _LONGER * size.epochs)
        return replace(asked, batch_size=size.batch_size, epochs=size.epochs, max_epochs=most, learning_rate=rate)

    def _find_rate(self, train: Sequence[Encoded], threads: int, processes: Group) -> Found:
        """Take the learning rate at which the loss falls fastest."""
        with self._new_network(threads, Progress()):
            found = find_rate(self, train, processes)
        self.options = replace(self.options, learning_rate=found.rate, lr_find=False)
        return found

    def _plan(self, train: Lengths, found: Found | None) -> str:
        """Describe the training: batch size, rate, epochs, and those chosen by the size of the data."""
        options = self.options
        examples = self.batching().examples(train)
        steps = options.epochs * -(-examples // options.batch_size)
        names = ["batch_size", *([] if found else ["learning_rate"]), "epochs"]
        chosen = [each.replace("_", " ") for each in names if getattr(self.asked, each) != getattr(options, each)]
        return (
            f"{plural(examples, 'example')}: batch size {options.batch_size}, learning rate {options.learning_rate:g}"
            f"{' found' if found else ''}, {plural(options.epochs, 'epoch')} ({plural(steps, 'step')})"
            + (f"; chosen by data size: {', '.join(chosen)}" if chosen else "")
        )

    def split_of(self, given: Any) -> Split[Example]:
        """Return the examples of a frame, a `datasets.Dataset` or a `DatasetDict`; a Split is returned unchanged."""
        if isinstance(given, Split):
            return given
        rows = {name: self.of_rows(records.rows_of(part)) for name, part in records.parts(given).items()}
        return Split(**rows)

    @classmethod
    def resume(
        cls, run: str | Path, split: Split[Example] | Any = None, *, progress: Progress | None = None
    ) -> tuple[Self, dict[str, Any]]:
        """Go on with an interrupted run, to the same weights that it would have reached without a break.

        Args:
            run: the folder that `fit` was given
            split: the examples that `fit` was given; read again as the options say if None
            progress: receives the reports

        Returns:
            the task, trained, and what `fit` returns

        Raises:
            RunError: no such run, one that has ended, or the data has changed since it began
            Interrupted: Ctrl-C; the run can be resumed again
        """
        processes = group()
        with processes.of_a_training() as leads:
            progress = progress if progress and leads else Progress()
            folder = processes.agreed(lambda: Run.open(run))
            content = folder.content
            with processes.together():
                folder.check_unfinished(next(each for each in cls.try_next if not each.startswith("evaluate")))
                task = cls.from_run(folder)
                check_device(task.options, processes.world)
                encoded = task.encode_split(task.read_split(progress) if split is None else task.split_of(split))
            for name, found in fingerprints(encoded, processes).items():
                if content["data"].get(name) != found:
                    raise RunError(
                        f"{run}: the {name} data has changed since the run began; restore the file, or train again"
                    )
            as_before = content.get("processes", 1) == processes.size
            threads = content["threads"] if as_before else task.options.threads or torch.get_num_threads()
            return task, task._train(encoded, threads, folder if leads else None, progress, processes)

    def evaluate(self, examples: Sequence[Example]) -> dict[str, float]:
        """Return the scores on labelled examples."""
        for sentence in said_of(self.targets, self.vocabularies, examples, "the data"):
            warnings.warn(sentence, stacklevel=2)
        return score(self.frozen(), self.encoded(examples))

    def frozen(self, precision: str | None = None) -> Self:
        """Return a copy of the task whose network is an inference session: for predictions, not for training.

        `predict` and the other methods of inference do this themselves at each call. A frozen task packs the weights
        once for all calls.

        Args:
            precision: of the recurrent layers' weights, as in `gg.freeze`

        Returns:
            the copy; the task itself if no precision is given and the network is frozen already, is on a GPU, has no
            recurrent layer, or has one that is recorded, edited or hooked

        Raises:
            OptionError: the processor or the cell does not support the precision
        """
        network = self.network.eval()
        layers = [part for part in network.modules() if isinstance(part, gg.Recurrent)]
        if precision is None and not (layers and all(map(_is_plain, layers))):
            return self
        try:
            session = gg.freeze(network, precision)
        except (gg.EngineError, ValueError) as error:
            raise OptionError(str(error)) from None
        task = copy(self)
        task.network = session.module
        return task

    def outputs(
        self, encoded: Sequence[Encoded], batches: Batches | None = None
    ) -> Iterator[tuple[Any, Batch, list[Piece]]]:
        """Yield the network's output for each batch, the batch, and the pieces that are its rows.

        Args:
            encoded: the encoded examples
            batches: those of evaluation if None
        """
        return outputs(self, encoded, batches)

    def predict(self, examples: Sequence[Example]) -> list[Prediction]:
        """Return a prediction for each example, in their order."""
        encoded, task = self.encoded(examples), self.frozen()
        parts: list[dict[int, Any]] = [{} for _ in examples]
        for output, batch, pieces in task.outputs(encoded):
            for piece, part in zip(pieces, task.decode(output, batch), strict=True):
                if len(piece):
                    parts[piece.index][piece.start] = part
        return [_joined([each[start] for start in sorted(each)]) for each in parts]

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
        task = cls.from_run(run)
        with _made_of(run):
            task.network = task.build()
        task._load_weights(run)
        return task

    def _load_weights(self, run: Run) -> None:
        saved, expected = run.load_model(), self.network.state_dict()
        for name in sorted(saved.keys() | expected.keys()):
            here, there = (tuple(each[name].shape) if name in each else "missing" for each in (saved, expected))
            if here != there:
                raise RunError(
                    f"{run.path}: the weights do not fit the options in run.json ({name} is {here}, and {there} by the "
                    "options); copy the folder again, or train again"
                )
        self.network.load_state_dict(saved)

    def _train(
        self,
        encoded: dict[str, Sequence[Encoded]],
        threads: int,
        folder: Run | None,
        progress: Progress,
        processes: Group,
    ) -> dict[str, Any]:
        place = processes.first(str(folder.path) if folder else "")
        processes.advice = f"; resume with: glassgate train --resume {place}" if place else ""
        with self._new_network(threads, progress):
            return train(self, encoded, folder, progress, processes)

    @contextmanager
    def _new_network(self, threads: int, progress: Progress) -> Iterator[None]:
        """Make the network that training starts from, and the threads and random numbers that it trains with."""
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with torch.random.fork_rng(), _in_memory(self.options):
                torch.manual_seed(self.options.seed)
                self.network = self.build()
                self.start(progress)
                yield
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
    def from_run(cls, run: Run) -> Self:
        """Return the task of a run, without its network.

        Raises:
            RunError: a run of another task, or of a version with other options
        """
        if run.content["task"] != cls.name:
            raise RunError(f"{run.path}: expected a run of {cls.name}, got one of {run.content['task']}")
        try:
            # Runs of older versions without this option held nothing out.
            task = cls(cls.options_type.from_mapping({"held_out": 0.0, **run.content["options"]}))  # type: ignore[arg-type]
        except OptionError as error:
            raise not_known_here(run.path, error) from None
        task._take(run.content)
        return task

    def _take(self, content: Mapping[str, Any]) -> None:
        """Take over the vocabularies and facts of a run if they differ from the present ones."""
        there = vars(self).get("vocabularies")
        if there is None or {name: each.symbols for name, each in there.items()} != content["vocabularies"]:
            self.vocabularies = {name: Vocabulary(symbols) for name, symbols in content["vocabularies"].items()}
        if self.facts != content["facts"]:
            self.facts = content["facts"]

    def encoded(self, examples: Sequence[Example]) -> Sequence[Encoded]:
        """Encode examples; stored ones when they are asked for, but see now that they can be.

        Raises:
            DataError: an example that cannot be encoded
        """
        if not isinstance(examples, Stored):
            return [self.encode(example) for example in examples]
        for field, name in self.targets.items():
            if field in examples.fields and name in self.vocabularies:
                place = examples.first_without(field)
                if place is not None:
                    self.encode(examples[place])
        for name, labels in lacking(self.targets, self.vocabularies, examples).items():
            self.numbered(name, list(labels))
        return EncodedLater(examples, self.encode)

    def encode_split(self, split: Split[Example]) -> dict[str, Sequence[Encoded]]:
        """Encode the parts of a split, and note labels that the training data lacks."""
        known, held_out = (self.targets, self.vocabularies), {"the dev data": split.dev, "the test data": split.test}
        self.warnings = [each for name, part in held_out.items() for each in said_of(*known, part, name)]
        return {name: self.encoded(getattr(split, name)) for name in ("train", "dev", "test")}


def _is_plain(layer: gg.Recurrent) -> bool:
    """Whether a frozen copy of the layer gives the same results, and no one looks on."""
    hooked = layer._forward_hooks or layer._forward_pre_hooks
    return not (layer.is_observed or hooked) and all(each.device.type == "cpu" for each in layer.parameters())


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
