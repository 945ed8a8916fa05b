"""The findings on networks that have learned nothing: random networks, and trainings on shuffled labels, of each task.

`pytest -m matrix tests/glass/test_controls.py` runs 200 random networks and 50 trainings; the ordinary run a few.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from glassgate.glass.findings import Finding, findings
from glassgate.glass.study import Study
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.series import given
from glassgate.tasks.data.series.schema import TIME, Frequency
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.text import Text
from glassgate.tasks.study import Stretch, study
from glassgate.tasks.task import Split

WORDS = ["red", "green", "blue", "one", "two", "three", "up", "down", "left", "right"]
PASSAGES, STEPS = 12, 10
# Statements about scores and training, which are true of a network without structure, too.
SCORES = ("answers", "no better than a guess", "overfitting")


def split(name: str, seed: int) -> Split[Any]:
    """Data of a task whose labels, order or targets are random."""
    random = np.random.default_rng(seed)

    def words(count: int = STEPS) -> list[str]:
        return [WORDS[k] for k in random.integers(len(WORDS), size=count)]

    def example() -> Any:
        if name == "tagging":
            return Tagged(tuple(words()), tuple("ABC"[k] for k in random.integers(3, size=STEPS)))
        if name == "classification":
            return Labelled(" ".join(words()), "AB"[random.integers(2)])
        if name == "translation":
            return Pair(" ".join(words(6)), " ".join(words(5)))
        return Text(" ".join(words(30)))

    if name == "forecasting":
        values = random.normal(size=160)
        return Split([given(values, "", np.datetime64("2024-01-01", "us"), Frequency(TIME, 10**6))])
    if name in ("language-model", "fill-blanks"):
        return Split([example()], [example()])
    return Split([example() for _ in range(32)], [example() for _ in range(PASSAGES)])


def trained(name: str, seed: int, epochs: int, hidden_size: int = 12) -> tuple[Any, list[Stretch]]:
    kind, data = task_class(name), split(name, seed)
    options = {"hidden_size": hidden_size, "embedding_size": 8, "epochs": epochs, "threads": 1, "seed": seed}
    if name == "translation":
        options |= {"source_unit": "word", "target_unit": "word"}
    task = kind(kind.options_type.from_mapping(options))
    task.fit(data)
    shown = data.dev or data.train
    return task, [Stretch(each, *task.stretch(each, (0, min(150, len(task.steps(each)))))) for each in shown]


@cache
def prepared(name: str) -> tuple[Any, list[Stretch]]:
    return trained(name, 0, 1)


def of_random_weights(name: str, seed: int) -> Study:
    task, stretches = prepared(name)
    with torch.random.fork_rng():
        torch.manual_seed(1000 + seed)
        task.network = task.build().eval()
    return study(task, stretches, name)


def of_random_labels(name: str, seed: int) -> Study:
    return study(*trained(name, seed, 8), name)


def structural(made: Study) -> list[Finding]:
    return [each for each in findings(made) if each.rule not in SCORES]


@pytest.mark.parametrize("name", ["tagging", "language-model"])
def test_random_networks_have_no_structural_headline(name: str) -> None:
    assert structural(of_random_weights(name, 0)) == []


@pytest.mark.matrix
def test_at_most_one_structural_headline_in_twenty_networks_without_structure() -> None:
    """200 random networks and 50 trainings on shuffled labels, over the six tasks."""
    tasks, found = list(TASKS), []
    for number in range(200):
        found += [
            (tasks[number % 6], number, each.sentence)
            for each in structural(of_random_weights(tasks[number % 6], number))
        ]
    assert len(found) <= 10, found
    found = []
    for number in range(50):
        found += [
            (tasks[number % 6], number, each.sentence)
            for each in structural(of_random_labels(tasks[number % 6], 1 + number))
        ]
    assert len(found) <= 2, found
