"""Examples of a large file are converted once, stay on disk, and train the same network as a small file."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgate.storage import cache_folder
from glassgate.tasks import task_class
from glassgate.tasks.data import corpus as corpora
from glassgate.tasks.data import store
from glassgate.tasks.data.bio import is_valid
from glassgate.tasks.data.corpus import Corpus
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.texts import Text
from glassgate.tasks.errors import DataError
from glassgate.tasks.progress import Interrupted, Progress
from glassgate.tasks.runs import MODEL
from glassgate.tasks.task import Split, Task
from tests.forked import run_python
from tests.tasks.corpus import sentences, write_conllu
from tests.tasks.training.test_resume import CtrlC, same_files

SMALL = {"hidden_size": 4, "embedding_size": 4, "epochs": 2, "batch_size": 4, "threads": 1}


@pytest.fixture(autouse=True)
def _small_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every file as large, and make groups and blocks so small that there are many."""
    monkeypatch.setenv("GLASSGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "LARGE", 1)
    monkeypatch.setattr(corpora, "_MAX_EXAMPLES", 5)
    monkeypatch.setattr(corpora, "_MAX_TOKENS", 20)
    monkeypatch.setattr(corpora, "_BLOCK", 20)


def cached() -> list[Path]:
    return sorted((cache_folder() / "data").glob("*"))


def write(folder: Path, kind: str) -> tuple[str, dict[str, Any]]:
    """Write a file of this kind; return the task that reads it, and its options."""
    draw = random.Random(1)
    words = ["fine", "foul", "day", "\u6211"]
    rows = [(" ".join(draw.choices(words, k=draw.randint(1, 6))), "ab"[k % 2]) for k in range(41)]
    path = folder / f"a.{kind}"
    if kind == "csv":
        path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
        return "classification", {"data": str(path), "held_out": 0.2}
    if kind == "jsonl":
        path.write_text("".join(f'{{"text": "{text}", "label": "{label}"}}\n' for text, label in rows))
        return "classification", {"data": str(path), "tokens": "character", "pooling": "attention"}
    if kind == "conllu":
        write_conllu(path, sentences(40))
        return "tagging", {"data": str(path), "longest": 4}
    if kind == "tsv":
        lines = ("".join(f"{word}\tB-{label}\nof\tI-{label}\n" for word in text.split()) for text, label in rows)
        path.write_text("\n".join(f"# intent = {k % 2}\n{each}" for k, each in enumerate(lines)))
        return "tagging", {"data": str(path), "head": "crf"}
    if kind == "txt":
        path.write_text("".join(f"{text}\n\n" for text, _ in rows))
        path.with_suffix(".labels").write_text("".join("X " * text.count(" ") + "Y\n\n" for text, _ in rows))
        return "tagging", {"data": str(path)}
    if kind == "folder":
        path.mkdir()
        (path / "seq.in").write_text("".join(f"{text}\n" for text, _ in rows))
        (path / "seq.out").write_text("".join("B-x " * text.count(" ") + "O\n" for text, _ in rows))
        (path / "label").write_text("".join(f"{label}\n" for _, label in rows))
        return "tagging", {"data": str(path)}
    path = folder / "lines.txt"
    path.write_text("".join(f"{text} {label}\n" for text, label in rows))
    return kind, {"data": str(path), "sequence": "line", "held_out": 0.2, "tokens": "word"}


KINDS = ("csv", "jsonl", "conllu", "tsv", "txt", "folder", "language-model", "fill-blanks")


def made(folder: Path, kind: str) -> Task[Any, Any, Any]:
    name, options = write(folder, kind)
    return task_class(name)(task_class(name).options_type.from_mapping(SMALL | options))


def plain(example: Any) -> tuple[Any, ...]:
    """Return the content of an example as objects that can be compared."""
    if isinstance(example, Labelled):
        return list(example.content), example.label, example.source, example.line
    if isinstance(example, Text):
        return list(example.tokens), example.source, example.line
    labels = None if example.labels is None else list(example.labels)
    lines = [example.line(place) for place in range(len(example.tokens))]
    return list(example.tokens), labels, example.source, lines, example.intent


def in_memory(task: Task[Any, Any, Any], monkeypatch: pytest.MonkeyPatch) -> Sequence[Any]:
    with monkeypatch.context() as here:
        here.setattr(store, "LARGE", 2**60)
        return task.read(task.options.data)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_examples_equal_those_in_memory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = made(tmp_path, kind)
    on_disk, wanted = task.read(task.options.data), in_memory(task, monkeypatch)
    assert isinstance(on_disk, Corpus)
    assert on_disk.digest
    assert list(map(plain, on_disk)) == list(map(plain, wanted))
    assert [plain(each) for each in on_disk[30:3:-2]] == [plain(each) for each in list(wanted)[30:3:-2]]
    assert plain(on_disk[-1]) == plain(wanted[len(wanted) - 1])
    assert on_disk.lengths.tolist() == [len(plain(each)[0]) for each in wanted]
    assert len(cached()) == 1


@pytest.mark.parametrize("kind", ["csv", "tsv", "conllu"])
def test_counts_are_those_of_the_examples(kind: str, tmp_path: Path) -> None:
    task = made(tmp_path, kind)
    examples = task.read(task.options.data)
    assert isinstance(examples, Corpus)
    for part in (examples, examples[7:9], examples[np.array([31, 2, 17, 5])]):
        for field in (name for name, holds in part.fields.items() if holds == corpora.SEQUENCE):
            assert part.counts(field) == Counter(symbol for each in part for symbol in getattr(each, field))
            sequences = [[None, *getattr(each, field)] for each in part]
            pairs = {pair for each in sequences for pair in pairwise(each)}
            assert part.adjacent_pairs(field) == pairs
            met, known = set(examples.counts(field)), set(getattr(part[0], field))
            assert part.has_unknown(field, known.__contains__) is (known != met)
            assert part.first_without(field) is None


@pytest.mark.parametrize("kind", KINDS)
def test_training_on_stored_examples_equals_training_in_memory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Examples read from disk, read from a small file and given as objects train the same network."""
    task = made(tmp_path, kind)
    results = [task.fit()]
    small = in_memory(task, monkeypatch)
    with monkeypatch.context() as here:
        here.setattr(store, "LARGE", 2**60)
        results.append(type(task)(task.options).fit())
    split = task.read_split(Progress())
    objects = Split(*([as_given(each) for each in part] for part in (split.train, split.dev, split.test)))
    results.append(type(task)(task.options).fit(objects))
    for other in results[1:]:
        for name in ("dev", "test", "history", "padding"):
            assert other[name] == results[0][name]
    assert task.predict(task.read(task.options.data)) == task.predict([as_given(each) for each in small])


def as_given(example: Any) -> Any:
    """Return the example as a user would create it."""
    if isinstance(example, Labelled):
        return Labelled(list(example.content), example.label)
    if isinstance(example, Text):
        return Text(list(example.tokens))
    return Tagged(list(example.tokens), list(example.labels or ()), intent=example.intent)


def test_invalid_bio_labels_are_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a\tB-X\nb\tI-X\n\n" * 30 + "a\tO\nb\tI-X\n")
    task = task_class("tagging")(task_class("tagging").options_type.from_mapping(SMALL | {"data": str(path)}))
    examples = task.read(path)
    assert not all(is_valid(each.labels) for each in examples)
    for part, valid in ((examples, False), (examples[:30], True)):
        task.collect(part)
        assert task.fitted["valid"] is valid


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("tsv", "# intent = 0\nx\tB-a\n\nx\tB-a\n", r"dev\.tsv:4: expected an intent, as in training, got none"),
        ("csv", "text,label\nfine,a\nfoul\n", r"dev\.csv:3: expected 2 columns"),
    ],
)
def test_errors_are_reported_before_training(kind: str, content: str, message: str, tmp_path: Path) -> None:
    name, options = write(tmp_path, kind)
    dev = tmp_path / f"dev.{kind}"
    dev.write_text(content)
    task = task_class(name)(task_class(name).options_type.from_mapping(SMALL | options | {"dev": str(dev)}))
    with pytest.raises(DataError, match=message):
        task.fit(run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_second_process_uses_the_stored_data(tmp_path: Path) -> None:
    task = made(tmp_path, "csv")
    count = len(task.read(task.options.data))
    (folder,) = cached()
    before = [(file, file.stat().st_mtime_ns, file.stat().st_ino) for file in folder.iterdir()]
    code = (
        "import sys; from glassgate.tasks.data import store, corpus; store.LARGE = 1; corpus._convert = None\n"
        "from glassgate.tasks.classification import *\n"
        "print(len(Classification(ClassificationOptions()).read(sys.argv[1])))"
    )
    assert int(run_python("-c", code, task.options.data).stdout) == count
    assert [(file, file.stat().st_mtime_ns, file.stat().st_ino) for file in folder.iterdir()] == before


def test_changed_files_and_damaged_caches_are_converted_again(tmp_path: Path) -> None:
    task = made(tmp_path, "folder")
    path = Path(task.options.data)
    wanted = [plain(each) for each in task.read(path)]
    (folder,) = cached()
    file = folder / "0"
    content = file.read_bytes()
    file.unlink()  # the old memory map keeps the old file
    file.write_bytes(content[:-9])
    assert [plain(each) for each in task.read(path)] == wanted
    assert file.read_bytes() == content
    (path / "label").write_text("c\n" * len(wanted))  # in the same folder as the tokens, and part of the stored data
    assert {each.intent for each in task.read(path)} == {"c"}


def test_a_full_disk_raises_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    task = made(tmp_path, "csv")
    monkeypatch.setattr(corpora, "_convert", full)
    with pytest.raises(DataError, match=r"a\.csv: could not be stored in .*data .*No space left.*GLASSGATE_CACHE"):
        task.read(task.options.data)
    assert not cached()


class Report(Progress):
    """Records the reported fractions of the conversion."""

    def __init__(self) -> None:
        self.fractions: list[float] = []

    def converting(self, file: str, fraction: float) -> None:
        self.fractions.append(fraction)


@pytest.mark.parametrize("kind", KINDS)
def test_progress_is_reported_from_0_to_1(kind: str, tmp_path: Path) -> None:
    task, progress = made(tmp_path, kind), Report()
    task.read(task.options.data, progress=progress)
    assert progress.fractions[0] == 0.0
    assert progress.fractions[-1] == 1.0
    assert sorted(progress.fractions) == progress.fractions
    assert len(progress.fractions) > 5
    again = Report()
    task.read(task.options.data, progress=again)
    assert not again.fractions


def test_a_run_on_stored_examples_recognises_its_data(tmp_path: Path) -> None:
    task = made(tmp_path, "csv")
    task.fit(run=tmp_path / "whole")
    with pytest.raises(Interrupted):
        type(task)(task.options).fit(run=tmp_path / "run", progress=CtrlC(3))
    type(task).resume(tmp_path / "run")
    assert same_files(tmp_path / "whole", tmp_path / "run", MODEL)
