"""Reading a file changes neither the task nor later readings, and opens the file a few times."""

import json
import os
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgate.tasks import TASKS, task_class
from glassgate.tasks import task as task_module
from glassgate.tasks.data.files import open_file
from glassgate.tasks.data.reading import Reading
from glassgate.tasks.language_model import LanguageModel, LanguageModelOptions
from glassgate.tasks.language_model.music import Roll
from glassgate.tasks.tagging import Tagging, TaggingOptions

ROLLS = json.dumps({"train": [[[60, 64], [62], []]] * 3, "valid": [[[60], [65]]], "test": [[[67], [60]]]})
ROWS = [(f"{k % 4 + 1}\tword{k}", "B-x" if k % 2 else "O", "\n" * (k % 4 == 3)) for k in range(40)]
SUFFIXES = {"classification": "csv", "regression": "csv", "forecasting": "csv", "rolls": "json"}
SMALL = {"hidden_size": 4, "epochs": 1, "threads": 1}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A file for each task, and others, which have not changed for a while."""
    texts = [f"{'good' if k % 2 else 'bad'} film number {k}" for k in range(40)]
    contents = {
        "tagging": "\n".join(f"word{k}\t{'AB'[k % 2]}" + "\n" * (k % 4 == 3) for k in range(40)),
        "classification": "text,label\n" + "".join(f"{text},{k % 2}\n" for k, text in enumerate(texts)),
        "language-model": "\n".join(texts),
        "translation": "".join(f"{text}\t{text[::-1]}\n" for text in texts),
        "fill-blanks": "\n".join(texts),
        "regression": "text,label\n" + "".join(f"{text},{k / 7}\n" for k, text in enumerate(texts)),
        "forecasting": "time,value\n" + "".join(f"{2000 + k},{np.sin(k):.3f}\n" for k in range(400)),
        "rolls": ROLLS,
        "labels in column 3": "\n".join(f"{words}\t{label}\t_{end}" for words, label, end in ROWS),
        "labels in column 4": "\n".join(f"{words}\tO\t{label}{end}" for words, label, end in ROWS),
    }
    paths = {}
    for name, content in contents.items():
        paths[name] = tmp_path / f"{name.replace(' ', '-')}.{SUFFIXES.get(name, 'txt')}"
        paths[name].write_text(content)
        os.utime(paths[name], (1e9, 1e9))
    return paths


OPENED: list[str] = []
sys.addaudithook(lambda event, arguments: OPENED.append(str(arguments[0])) if event == "open" else None)


class FirstBatchError(Exception):
    """Training would begin."""


@pytest.mark.parametrize("name", TASKS)
def test_a_file_is_opened_at_most_three_times(
    name: str, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise FirstBatchError

    monkeypatch.setattr(task_module, "train", stop)
    kind = task_class(name)
    task = kind(kind.options_type.from_mapping(SMALL | {"data": str(files[name])}))
    OPENED.clear()
    with pytest.raises(FirstBatchError):
        task.fit()
    assert 1 <= Counter(OPENED)[str(files[name])] <= 3


@pytest.mark.parametrize("name", TASKS)
def test_reading_changes_nothing(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    """Two files give the same examples in any order, before the training and after it."""
    kind = task_class(name)
    file = files[name]
    other = tmp_path / f"other{file.suffix}"
    other.write_text("".join(file.read_text().splitlines(keepends=True)[: -len(file.read_text().splitlines()) // 3]))

    def read(task: Any, path: Path) -> list[Any]:
        values = [getattr(each, field) for each in task.read(path) for field in each.__slots__[:2]]
        return [each if each is None or isinstance(each, str) else list(each[:]) for each in values]

    task = kind(kind.options_type.from_mapping(SMALL))
    for trained in (False, True):
        if trained:
            task.fit(task.split(task.read(file)))
        before = task.options, task.requested, task.reading, repr(task.fitted)
        first = read(task, file), read(task, other)
        assert first[0] != first[1]
        assert (read(task, other), read(task, file)) == first[::-1]
        assert (task.options, task.requested, task.reading, repr(task.fitted)) == before


def test_a_language_model_reads_rolls_and_texts_in_any_order(files: dict[str, Path]) -> None:
    model = LanguageModel(LanguageModelOptions())
    rolls, text = files["rolls"], files["language-model"]
    first = model.read(rolls), model.read(text), model.read(rolls)
    assert model.options == model.requested == LanguageModelOptions()
    assert [type(each[0]) for each in first] == [Roll, type(LanguageModel(LanguageModelOptions()).read(text)[0]), Roll]
    assert "".join(first[1][0].tokens) == text.read_text() + "\n"
    assert all(
        np.array_equal(*map(np.asarray, pair)) for pair in zip(first[0][0].steps, first[2][0].steps, strict=True)
    )


def test_a_task_follows_the_file_of_its_training(files: dict[str, Path], tmp_path: Path) -> None:
    """Files read before do not matter; the columns of the training data do, and a run stores them."""
    path, other = files["labels in column 3"], files["labels in column 4"]
    fresh = Tagging(TaggingOptions(**SMALL))
    for _ in range(2):
        assert set(chain.from_iterable(each.labels for each in fresh.read(other))) == {"O", "B-x"}
        fresh.read(path)
    assert fresh.reading == Reading()
    trained = Tagging(TaggingOptions(**SMALL, data=str(path)))
    trained.fit(run=tmp_path / "run")
    loaded = Tagging.load(tmp_path / "run")
    for task in (trained, loaded):
        assert task.reading == Reading.of(4, text_column="2", label_column="3")
        assert set(chain.from_iterable(each.labels for each in task.read(other))) == {"O"}


def test_a_file_is_read_again_after_a_change(tmp_path: Path) -> None:
    path = tmp_path / "file"
    large = bytes(range(256)) * 2**13  # two blocks
    for content, time in ((b"first", 1e9), (b"other", 1e9 + 1), (b"equal", 1e9 + 1), (large, 1e9)):
        path.write_bytes(content)
        os.utime(path, (time, time))
        for _ in range(2):
            with open_file(path) as file:
                assert file.read() == content
    with open_file(path) as file:
        assert [file.seek(-3, os.SEEK_END), file.read(5), file.seek(2**20 - 2), file.read(4)] == [
            *(len(large) - 3, large[-3:], 2**20 - 2, large[2**20 - 2 : 2**20 + 2])
        ]
