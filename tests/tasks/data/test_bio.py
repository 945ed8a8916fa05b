"""Entities are counted as conlleval counts them, and valid paths are those of IOB2."""

from itertools import product

import pytest
import torch

from glassgate.tasks.data.bio import is_bio, is_valid, may_follow
from glassgate.tasks.tagging.crf import bio_penalties
from glassgate.tasks.tagging.scores import EntityScores

LABELS = ["B-PER", "O", "I-PER", "B-LOC", "I-LOC"]


def entities(labels: list[str]) -> set[tuple[int, int, str]]:
    """Return the first token, the last token and the type of each entity, by conlleval's rules for starts and ends."""
    spans, start, before = set(), 0, "O"
    for place, label in enumerate([*labels, "O"]):
        ends = before[0] in "BI" and (label[0] in "BO" or before[1:] != label[1:])
        starts = label[0] == "B" or (label[0] == "I" and (before == "O" or before[1:] != label[1:]))
        if ends:
            spans.add((start, place - 1, before[2:]))
        if starts:
            start = place
        before = label
    return spans


def scored(pairs: list[tuple[list[str], list[str]]]) -> dict[str, float]:
    """Return the scores of pairs of predicted and true labels, in one padded batch."""
    width = max(len(right) for _, right in pairs) + 1
    preds, target = torch.zeros(2, len(pairs), width, dtype=torch.long)
    preds.fill_(LABELS.index("I-PER"))  # predictions at padding must not count
    target.fill_(-100)
    for row, (said, right) in enumerate(pairs):
        preds[row, : len(said)] = torch.tensor([LABELS.index(label) for label in said])
        target[row, : len(right)] = torch.tensor([LABELS.index(label) for label in right])
    metric = EntityScores(LABELS)
    metric.update(preds, target)
    return {name: float(value) for name, value in metric.compute().items()}


@pytest.mark.parametrize(
    ("said", "right", "counts"),
    [
        ("B-PER I-PER O", "B-PER I-PER O", (1, 1, 1)),
        ("B-PER O O", "B-PER I-PER O", (0, 1, 1)),  # its end is wrong
        ("O B-PER O", "B-PER I-PER O", (0, 1, 1)),  # its start is wrong
        ("B-LOC I-LOC O", "B-PER I-PER O", (0, 1, 1)),  # its type is wrong
        ("B-PER B-PER O", "B-PER I-PER O", (0, 2, 1)),  # two in place of one
        ("B-PER I-PER O", "B-PER B-PER O", (0, 1, 2)),
        ("I-PER I-PER O", "B-PER I-PER O", (1, 1, 1)),  # a start by I- is a start
        ("B-PER I-LOC O", "B-PER B-LOC O", (2, 2, 2)),  # and so is a change of type
        ("O I-LOC B-LOC", "O B-LOC B-LOC", (2, 2, 2)),
        ("O O O", "B-PER I-PER O", (0, 0, 1)),
        ("O O B-LOC", "O O O", (0, 1, 0)),
        ("O O O", "O O O", (0, 0, 0)),
    ],
)
def test_counts_of_conlleval(said: str, right: str, counts: tuple[int, int, int]) -> None:
    hits, predicted, wanted = counts
    assert scored([(said.split(), right.split())]) == {
        "precision": hits / predicted if predicted else 0,
        "recall": hits / wanted if wanted else 0,
        "f1": 2 * hits / (predicted + wanted) if predicted + wanted else 0,
    }


def test_random_paths() -> None:
    every = [list(path) for length in (1, 2, 3) for path in product(LABELS, repeat=length)]
    order = torch.randperm(len(every)).tolist()
    pairs = [(said, every[place]) for said, place in zip(every, order, strict=True) if len(said) == len(every[place])]
    assert len(pairs) > 50
    hits = sum(len(entities(said) & entities(right)) for said, right in pairs)
    predicted, wanted = (sum(len(entities(pair[side])) for pair in pairs) for side in (0, 1))
    expected = {"precision": hits / predicted, "recall": hits / wanted, "f1": 2 * hits / (predicted + wanted)}
    assert scored(pairs) == pytest.approx(expected)


def test_form() -> None:
    assert is_bio(["O", "B", "I"])
    assert is_bio(["O", "B-a-b", "I-a-b"])
    assert not is_bio(["O", "I-PER"])  # no entity begins
    assert not is_bio(["O", "B-PER", "E-PER"])
    assert not is_bio(["ADJ", "B-PER"])


def test_valid_paths() -> None:
    assert is_valid(["B-PER", "I-PER", "I-PER", "B-PER", "O"])
    for wrong in ("I-PER", "O I-PER", "B-LOC I-PER", "B-PER I-LOC"):
        assert not is_valid(wrong.split()), wrong
    start, follow = bio_penalties(LABELS)
    assert start.tolist() == [0.0 if may_follow(None, label) else -torch.inf for label in LABELS]
    assert follow.tolist() == [[0.0 if may_follow(a, b) else -torch.inf for b in LABELS] for a in LABELS]
    assert torch.isinf(follow).sum() == 2 + 1 + 1 + 1 + 1


def test_scores_per_type() -> None:
    """One of two people is found, and one place too many."""
    metric = EntityScores(LABELS)
    target, preds = (torch.tensor([[0, 2, 1, 0, 1, 3]]), torch.tensor([[0, 2, 1, 3, 1, 3]]))
    metric.update(preds, target)
    assert metric.by_label() == {
        "PER": {"precision": 1.0, "recall": 0.5, "f1": 2 / 3, "support": 2},
        "LOC": {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "support": 1},
    }
