"""Held-out parts do not depend on the seed or the order, and equal contents are in one part."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from glassgate.tasks import TASKS, task_class
from glassgate.tasks.data.held_out import ByContent, LastExamples, LastSteps
from glassgate.tasks.data.texts import Text
from glassgate.tasks.progress import Progress
from glassgate.tasks.training.processes.group import Group

BY_TEXT = ByContent[str](str)


def test_order_and_repetitions_do_not_matter() -> None:
    examples = [f"text {k}" for k in range(100)]
    train, dev, test = BY_TEXT.split(examples, 0.1)
    assert (len(train), len(dev), len(test)) == (80, 10, 10)
    assert sorted([*train, *dev, *test]) == sorted(examples)
    assert [*train] == [each for each in examples if each in train]
    shuffled = random.Random(0).sample(examples, 100)
    assert [set(part) for part in BY_TEXT.split(shuffled, 0.1)] == [set(part) for part in (train, dev, test)]
    parts = [set(part) for part in BY_TEXT.split(examples * 3, 0.1)]
    assert parts[0].isdisjoint(parts[1] | parts[2])
    assert parts[1].isdisjoint(parts[2])


def test_too_few_examples_and_no_held_out_part() -> None:
    for rule in (BY_TEXT, LastExamples[str]()):
        assert rule.split(["a", "b"], 0.1) == (["a", "b"], [], [])
        assert rule.split(["a"] * 20, 0.0) == (["a"] * 20, [], [])
        assert [len(part) for part in rule.split(["a"] * 20, 0.1)] == [16, 2, 2]


def test_the_last_examples_and_the_last_steps() -> None:
    lines = [Text(str(number)) for number in range(20)]
    train, dev, test = LastExamples[Text]().split(lines, 0.1)
    assert [*train, *dev, *test] == lines
    assert len(dev) == len(test) == 2
    texts = [Text("abcdefghij", "a.txt"), Text("abcdefghijklmnopqrstuvwxyz", "b.txt"), Text("abc", "c.txt")]
    parts = LastSteps[Text]().split(texts, 0.1)
    assert [[str(each.tokens) for each in part] for part in parts] == [
        ["abcdefgh", "abcdefghijklmnopqrstuv", "abc"],
        ["i", "wx"],
        ["j", "yz"],
    ]


def _write(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Write a file for each task and each of its rules; return the options that read it."""
    rows = [f"so {'fine' if k % 2 else 'foul'} {k}" for k in range(60)]
    content = {
        "tags.tsv": "".join(f"w{k}\tA\nv\tB\n\n" for k in range(60)),
        "labels.csv": "text,label\n" + "".join(f"{row},{'ab'[k % 2]}\n" for k, row in enumerate(rows)),
        "numbers.csv": "text,label\n" + "".join(f"{row},{k % 7}\n" for k, row in enumerate(rows)),
        "text.txt": "".join(f"{row}.\n" for row in rows),
        "pairs.tsv": "".join(f"{row}\t{row[::-1]}\n" for row in rows),
        "series.csv": "time,load\n" + "".join(f"{k},{k**3 % 97}\n" for k in range(240)),
    }
    for name, text in content.items():
        (folder / name).write_text(text)
    np.savez(folder / "music.npz", np.eye(88, dtype=np.uint8)[np.random.default_rng(0).integers(0, 88, (60, 9))])
    return {
        "tagging": ("tags.tsv", {}),
        "classification": ("labels.csv", {}),
        "regression": ("numbers.csv", {}),
        "language-model": ("text.txt", {}),
        "language-model, lines": ("text.txt", {"sequence": "line"}),
        "language-model, music": ("music.npz", {}),
        "translation": ("pairs.tsv", {}),
        "fill-blanks": ("text.txt", {}),
        "forecasting": ("series.csv", {"horizon": 3}),
    }


CASES = [*TASKS, "language-model, lines", "language-model, music"]


@pytest.mark.parametrize("case", CASES)
def test_no_task_depends_on_the_seed(case: str, tmp_path: Path) -> None:
    file, options = _write(tmp_path)[case]
    kind = task_class(case.partition(",")[0])
    seen = []
    for seed in (1, 2):
        task = kind(kind.options_type.from_mapping({"data": str(tmp_path / file), "seed": seed} | options))
        split = task.read_split(Progress())
        assert all(len(part) for part in vars(split).values())
        task.vocabularies = task.collect(split.train)
        seen.append(Group.from_environment().fingerprints(task.encode_split(split)))
    assert seen[0] == seen[1]
    assert len({*seen[0].values()}) == 3  # the parts differ


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_held_out_at_a_fraction_of_0(case: str, tmp_path: Path) -> None:
    file, options = _write(tmp_path)[case]
    kind = task_class(case.partition(",")[0])
    task = kind(kind.options_type.from_mapping({"data": str(tmp_path / file), "held_out": 0.0} | options))
    split = task.read_split(Progress())
    assert len(split.train)
    assert not len(split.dev)
    assert not len(split.test)


def test_a_frame_is_split_like_a_file(tmp_path: Path) -> None:
    file, _ = _write(tmp_path)["classification"]
    kind = task_class("classification")
    task = kind(kind.options_type.from_mapping({"data": str(tmp_path / file)}))
    read, given = task.read_split(Progress()), task.split_of(pd.read_csv(tmp_path / file))
    for name in ("train", "dev", "test"):
        labels = [[each.label for each in getattr(split, name)] for split in (read, given)]
        assert labels[0] == labels[1]
        assert labels[0]
