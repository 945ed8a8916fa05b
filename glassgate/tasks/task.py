"""The base class of tasks: `fit`, `evaluate`, `predict`, `save` and `load`. Subclasses implement `Definition`."""

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
from glassgate.tasks.data.batches import Batch, Encoded, lengths, restore_random_state
from glassgate.tasks.data.batching import Batches, Lengths, Piece
from glassgate.tasks.data.corpus import Corpus
from glassgate.tasks.data.held_out import ByContent
from glassgate.tasks.data.reading import Reading
from glassgate.tasks.data.unknown import unknown_label_warnings, unknown_labels
from glassgate.tasks.data.vocabulary import Vocabulary
from glassgate.tasks.definition import Definition, Example, OptionsType, Prediction, Split, Vocabularies
from glassgate.tasks.errors import OptionError, RunError, UserError
from glassgate.tasks.progress import Progress
from glassgate.tasks.runs import RUN, Run, version_error
from glassgate.tasks.training.devices import check_device, convert_memory_errors, device_of
from glassgate.tasks.training.loop import train
from glassgate.tasks.training.processes.group import Group
from glassgate.tasks.training.rate_finder import RateSearch, find_rate
from glassgate.tasks.training.schedule import by_size
from glassgate.tasks.training.scoring import outputs, score
from glassgate.tasks.wording import plural

# While the dev score improves, training continues for up to this multiple of the epochs that the data size determines.
_MAX_EXTENSION = 4
_MAX_HASHES = 1000  # training examples whose hashes a run stores, to recognise them in other files

__all__ = ["Split", "Task", "Vocabularies"]


class Task(Definition[OptionsType, Example, Prediction]):
    """A task that can be trained, stored and used."""

    def read_split(self, progress: Progress) -> Split[Example]:
        """Read the files named by the options, or the built-in data if they name none."""
        progress.reading()
        options, train = self.options, self.options.training_file
        if train is None:
            if options.dev or options.test:
                raise OptionError("--dev and --test need --data; give the training file, too")
            return self.read_builtin()
        self.follow(self.examine(train))
        if not (options.dev or options.test):
            return self.split(self.read(train, progress=progress))
        return Split(
            *(self.read(path, progress=progress) if path else [] for path in (train, options.dev, options.test))
        )

    def fit(
        self, split: Split[Example] | Any = None, *, run: str | Path | None = None, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Train a new network; if torchrun has started several processes, all of them take part.

        Args:
            split: the examples, or a pandas frame, a `datasets.Dataset` or a `DatasetDict` of Hugging Face whose
                columns the options name; None reads the files that the options name
            run: a new folder for model, checkpoint, configuration and scores; None keeps the model in memory only
            progress: receives the reports

        Returns:
            the content of metrics.json: the scores on dev and test, the scores of each epoch, and the speed

        Raises:
            UserError: data, options or folder cannot be used
            Interrupted: Ctrl-C or SIGTERM; the run can be resumed
        """
        processes = Group.from_environment()
        with processes.connected() as is_main:
            progress = progress if progress and is_main else Progress()
            with processes.shared_errors():
                check_device(self.options, processes)
                if run is not None and is_main:
                    Run.check_new(run)
                if cells.is_in_file(self.options.cell):
                    self.options = self.requested = replace(self.options, cell=cells.from_file(self.options.cell))
                split = self.read_split(progress) if split is None else self.split_of(split)
                if not len(split.train):
                    raise UserError(f"{self.name}: expected examples to train on, got none")
                split = replace(split, train=self.corpus(split.train))
                self.vocabularies = self.collect(split.train)
            content = processes.broadcast(self._content())
            if not is_main:
                self._set_content(content)
            with processes.shared_errors():
                encoded = self.encode_split(split)
                self.options = self.options_for(lengths(encoded["train"]))
                check_device(self.options, processes)
            threads = self.options.threads or torch.get_num_threads()
            search = self._find_rate(encoded["train"], threads, processes) if self.options.lr_find else None
            progress.note(self._describe_plan(lengths(encoded["train"]), search))
            content = self._content() | {"data": processes.fingerprints(encoded), "threads": threads}
            content |= {"processes": processes.size} if processes.size > 1 else {}
            if run is not None and isinstance(rule := self.held_out_rule, ByContent):
                hashes = rule.hashes(split.train, _MAX_HASHES)
                content["sample"] = {"count": len(split.train), "hashes": hashes}
            with processes.shared_errors():
                folder = Run.create(run, content) if run is not None and is_main else None
                if folder and search:
                    search.draw(folder.path, progress)
            return self._train(encoded, threads, folder, progress, processes)

    def options_for(self, train_lengths: Lengths) -> OptionsType:
        """Return the options; the lengths of the training sequences determine those that the user did not set."""
        options = self.requested
        size = by_size(self.batching().count_examples(train_lengths), options.batch_size, options.epochs)
        rate = self.rate_for(size.batch_size)
        max_epochs = options.max_epochs or (0 if options.epochs else _MAX_EXTENSION * size.epochs)
        return replace(
            options, batch_size=size.batch_size, epochs=size.epochs, max_epochs=max_epochs, learning_rate=rate
        )

    def rate_for(self, batch_size: int) -> float:
        """Return the peak learning rate for a batch size."""
        return self.requested.rate_for(batch_size)

    def _find_rate(self, train: Sequence[Encoded], threads: int, processes: Group) -> RateSearch:
        """Set the learning rate to the one at which the loss falls fastest."""
        with self._new_network(threads, Progress(), processes):
            search = find_rate(self, train, processes)
        self.options = replace(self.options, learning_rate=search.rate, lr_find=False)
        return search

    def _describe_plan(self, train_lengths: Lengths, search: RateSearch | None) -> str:
        """Describe batch size, learning rate and epochs, and which of them were chosen by data size."""
        options = self.options
        examples = self.batching().count_examples(train_lengths)
        steps = options.epochs * -(-examples // options.batch_size)
        names = ["batch_size", *([] if search else ["learning_rate"]), "epochs"]
        chosen = [each.replace("_", " ") for each in names if getattr(self.requested, each) != getattr(options, each)]
        return (
            f"{plural(examples, 'example')}: batch size {options.batch_size}, learning rate {options.learning_rate:g}"
            f"{' (found by the search)' if search else ''}, {plural(options.epochs, 'epoch')} ({plural(steps, 'step')})"
            + (f"; chosen by data size: {', '.join(chosen)}" if chosen else "")
        )

    def split_of(self, data: Any) -> Split[Example]:
        """Return the examples of a frame, a `datasets.Dataset` or a `DatasetDict`; a Split is returned unchanged.

        If both the dev and the test part are missing, the method `split` splits the data.
        """
        if isinstance(data, Split):
            return data
        parts = records.split_parts(data)
        split = Split(**{name: self.from_rows(records.iterate_rows(part)) for name, part in parts.items()})
        return split if split.dev or split.test else self.split(split.train)

    @classmethod
    def resume(
        cls, run: str | Path, split: Split[Example] | Any = None, *, progress: Progress | None = None
    ) -> tuple[Self, dict[str, Any]]:
        """Resume an interrupted run. The final weights are the same as without the interruption.

        Args:
            run: the run folder
            split: the examples that were passed to `fit`; None reads the files of the options again
            progress: receives the reports

        Returns:
            the trained task, and the result as `fit` returns it

        Raises:
            RunError: the run is missing or finished, or its data has changed
            Interrupted: Ctrl-C or SIGTERM; the run can be resumed again
        """
        processes = Group.from_environment()
        with processes.connected() as is_main:
            progress = progress if progress and is_main else Progress()
            folder = processes.broadcast_result(lambda: Run.open(run))
            content = folder.content
            with processes.shared_errors():
                folder.check_unfinished(next(each for each in cls.try_next if not each.startswith("evaluate")))
                task = cls.from_run(folder)
                check_device(task.options, processes)
                encoded = task.encode_split(task.read_split(progress) if split is None else task.split_of(split))
            for name, fingerprint in processes.fingerprints(encoded).items():
                if content["data"].get(name) != fingerprint:
                    raise RunError(
                        f"{run}: the {name} data has changed since the run began; restore the file, or train again"
                    )
            same_processes = content.get("processes", 1) == processes.size
            threads = content["threads"] if same_processes else task.options.threads or torch.get_num_threads()
            return task, task._train(encoded, threads, folder if is_main else None, progress, processes)

    def evaluate(self, examples: Sequence[Example]) -> dict[str, float]:
        """Return the scores on labelled examples."""
        corpus = self.corpus(examples)
        for sentence in unknown_label_warnings(self.targets, self.vocabularies, corpus, "the data"):
            warnings.warn(sentence, stacklevel=2)
        return score(self.frozen(), self.encoded(corpus))

    def frozen(self, precision: str | None = None) -> Self:
        """Return a copy of the task for inference, whose network is an inference session.

        `predict` and the other inference methods freeze a task at each call. A frozen task packs the weights once for
        all calls.

        Args:
            precision: the precision of the recurrent layers' weights, as in `gg.freeze`

        Returns:
            the copy; without `precision` the task itself if the network is already frozen, is on a GPU, has no
            recurrent layer, or has a recurrent layer that is recorded, edited or hooked

        Raises:
            OptionError: the processor or the cell does not support the precision
        """
        network = self.network.eval()
        layers = [module for module in network.modules() if isinstance(module, gg.Recurrent)]
        if precision is None and not (layers and all(map(_can_be_frozen, layers))):
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
        """Yield the network's output for each batch (None: the evaluation batches), the batch, and its pieces."""
        return outputs(self, encoded, batches)

    def predict(self, examples: Sequence[Example]) -> list[Prediction]:
        """Return a prediction for each example, in the same order."""
        encoded, task = self.encoded(examples), self.frozen()
        by_start: list[dict[int, Any]] = [{} for _ in examples]  # the predictions of the pieces of each example
        for output, batch, pieces in task.outputs(encoded):
            for piece, prediction in zip(pieces, task.decode(output, batch), strict=True):
                if len(piece):
                    by_start[piece.index][piece.start] = prediction
        return [_concatenate([each[start] for start in sorted(each)]) for each in by_start]

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` and the command line can read on any machine.

        Raises:
            RunError: the folder contains files
        """
        Run.create(folder, self._content()).save_model(self.network.state_dict())

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a folder that `save` or `fit` wrote.

        Raises:
            RunError: the folder is missing, incomplete, damaged, from a newer version or of another task
        """
        run = Run.open(folder)
        task = cls.from_run(run)
        try:
            task.network = task.build()
        except UserError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:  # an edited run.json
            raise RunError(
                f"{run.path / RUN}: no network can be built from it ({error!r}); copy the folder again, or train again"
            ) from None
        saved, expected = run.load_model(), task.network.state_dict()
        for name in sorted(saved.keys() | expected.keys()):
            got, needed = (tuple(each[name].shape) if name in each else "missing" for each in (saved, expected))
            if got != needed:
                raise RunError(
                    f"{run.path}: the weights do not fit the options in run.json ({name}: expected {needed}, got "
                    f"{got}); copy the folder again, or train again"
                )
        task.network.load_state_dict(saved)
        return task

    def _train(
        self,
        encoded: dict[str, Sequence[Encoded]],
        threads: int,
        folder: Run | None,
        progress: Progress,
        processes: Group,
    ) -> dict[str, Any]:
        run = processes.broadcast(str(folder.path) if folder else "")
        try:
            with self._new_network(threads, progress, processes):
                return train(self, encoded, folder, progress, processes)
        except RuntimeError as error:
            if run:
                error.add_note(f"resume with: glassgate train --resume {run}")
            raise

    @contextmanager
    def _new_network(self, threads: int, progress: Progress, processes: Group) -> Iterator[None]:
        """Build the initial network; set the threads and the random state for the `with` block."""
        threads_before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            device = device_of(self.options, processes)
            with restore_random_state(device), convert_memory_errors(self.options):
                torch.manual_seed(self.options.seed)
                self.network = self.build()
                self.start(progress)
                yield
        finally:
            torch.set_num_threads(threads_before)

    def _content(self) -> dict[str, Any]:
        symbols = {name: vocabulary.symbols for name, vocabulary in self.vocabularies.items()}
        options = self.options.with_absolute_paths().to_mapping()
        content = {"task": self.name, "options": options, "vocabularies": symbols, "fitted": self.fitted}
        return content | {"reading": self.reading.to_mapping()}

    @classmethod
    def from_run(cls, run: Run) -> Self:
        """Return the task of a run, without its network."""
        if run.content["task"] != cls.name:
            raise RunError(f"{run.path}: expected a run of {cls.name}, got one of {run.content['task']}")
        try:
            task = cls(cls.options_type.from_mapping(run.content["options"]))  # type: ignore[arg-type]
        except OptionError as error:
            raise version_error(run.path, error) from None
        task._set_content(run.content)
        return task

    def _set_content(self, content: Mapping[str, Any]) -> None:
        """Set `vocabularies`, `fitted` and `reading` to those of a run, or of process 0."""
        self.vocabularies = {name: Vocabulary(symbols) for name, symbols in content["vocabularies"].items()}
        self.fitted = content["fitted"]
        self.reading = Reading.from_mapping(content["reading"])

    def encoded(self, examples: Sequence[Example]) -> Corpus[Encoded]:
        """Encode examples; errors in their labels are reported now, even if the examples are encoded later."""
        corpus = self.corpus(examples)
        for field, name in self.targets.items():
            if field in corpus.fields and name in self.vocabularies:
                index = corpus.first_without(field)
                if index is not None:
                    self.encode(corpus[index])
        for name, labels in unknown_labels(self.targets, self.vocabularies, corpus).items():
            self.label_indices(name, list(labels))
        return corpus.map(self.encode)

    def encode_split(self, split: Split[Example]) -> dict[str, Sequence[Encoded]]:
        """Encode the parts of a split, and set the warnings about labels that the training data lacks."""
        parts = {name: self.corpus(getattr(split, name)) for name in ("train", "dev", "test")}
        self.warnings = [
            warning
            for name in ("dev", "test")
            for warning in unknown_label_warnings(self.targets, self.vocabularies, parts[name], f"the {name} data")
        ]
        return {name: self.encoded(part) for name, part in parts.items()}


def _can_be_frozen(layer: gg.Recurrent) -> bool:
    """Whether a layer is on the CPU and not recorded, edited or hooked."""
    hooked = layer._forward_hooks or layer._forward_pre_hooks
    return not (layer.glassgate.is_observed or hooked) and all(each.device.type == "cpu" for each in layer.parameters())


def _concatenate(predictions: list[Any]) -> Any:
    """Concatenate the predictions of the pieces of an example."""
    return predictions[0] if len(predictions) == 1 else list(chain.from_iterable(predictions))
