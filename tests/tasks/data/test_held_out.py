"""Held-out data: the same parts for every seed and order, and equal contents in one part."""

import random

import numpy as np
import pytest

from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.data.held_out import hold_out
from glassgate.tasks.data.labelled import Labelled


def test_order_and_repetitions_do_not_matter() -> None:
    examples = [f"text {k}" for k in range(100)]
    train, dev, test = hold_out(examples, 0.1, str)
    assert (len(train), len(dev), len(test)) == (80, 10, 10)
    assert sorted([*train, *dev, *test]) == sorted(examples)
    assert train == [each for each in examples if each in train]
    shuffled = random.Random(0).sample(examples, 100)
    assert [set(part) for part in hold_out(shuffled, 0.1, str)] == [set(part) for part in (train, dev, test)]
    parts = [set(part) for part in hold_out(examples * 3, 0.1, str)]
    assert parts[0].isdisjoint(parts[1] | parts[2])
    assert parts[1].isdisjoint(parts[2])


@pytest.mark.parametrize("seed", [1, 2])
def test_a_task_holds_out_the_same_for_every_seed(seed: int) -> None:
    task = Classification(ClassificationOptions(seed=seed))
    series = [Labelled(np.full((3, 1), k, np.float32), "a") for k in range(20)]
    split = task.hold_out(series, 0.1)
    again = Classification(ClassificationOptions(seed=9)).hold_out(series, 0.1)
    assert [float(each.content[0, 0]) for each in split.dev] == [float(each.content[0, 0]) for each in again.dev]
    assert len(split.train) == 16


def test_too_few_examples_and_no_held_out_part() -> None:
    assert hold_out(["a", "b"], 0.1, str) == (["a", "b"], [], [])
    assert hold_out(["a"] * 20, 0.0, str) == (["a"] * 20, [], [])
    assert [len(part) for part in hold_out(["a"] * 20, 0.1, str)] == [16, 2, 2]
