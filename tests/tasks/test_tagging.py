"""A tagger learns from both sides, its scores are those counted by hand, and it refuses labels it does not know."""

from pathlib import Path

import pytest
import torch

from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError, OptionError, UserError
from glassgate.tasks.tagging import Tagging, TaggingOptions, WholeTokens
from glassgate.tasks.task import Split
from tests.tasks.corpus import sentences, write_conllu

QUICK = {"hidden_size": 16, "embedding_size": 8, "learning_rate": 0.03, "least_count": 1, "batch_size": 8, "epochs": 5}


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_learns(cell: str) -> None:
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"cell": cell}))
    result = tagging.fit(Split(sentences(200), sentences(20, seed=1), sentences(50, seed=2)))
    assert result["test"]["accuracy"] > 0.99
    assert result["history"][0]["loss"] > result["history"][-1]["loss"]


def test_future_matters() -> None:
    """The first letter repeats the last: only a network that reads from both ends can know it."""
    letters = [Tagged(f"{'?'}xy{last}", [last, "n", "n", "n"]) for last in "ab"] * 30
    scores = {}
    for both in (True, False):
        tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"bidirectional": both, "epochs": 15}))
        scores[both] = tagging.fit(Split(letters, test=letters))["test"]["accuracy"]
    assert scores[True] == 1
    assert scores[False] < 0.9


def test_scores_by_hand() -> None:
    tagging = Tagging(TaggingOptions.from_mapping(QUICK))
    tagging.fit(Split(sentences(20)))
    examples = sentences(30, seed=5)
    pairs = [
        (said, right)
        for each, labels in zip(examples, tagging.predict(examples), strict=True)
        for said, right in zip(labels, each.labels or (), strict=True)
    ]
    f1 = []
    for label in {right for _, right in pairs}:
        hits = sum(said == right == label for said, right in pairs)
        f1.append(2 * hits / (sum(said == label for said, _ in pairs) + sum(right == label for _, right in pairs)))
    scores = tagging.evaluate(examples)
    assert scores["accuracy"] == pytest.approx(sum(said == right for said, right in pairs) / len(pairs))
    assert scores["macro_f1"] == pytest.approx(sum(f1) / len(f1))
    assert "whole_tokens" not in scores


def test_whole_tokens() -> None:
    metric = WholeTokens()
    tokens = torch.tensor([[0, 0, -1, 1], [0, 1, 1, 1], [-1, -1, -1, -1]])
    right = torch.zeros(3, 4, dtype=torch.long)
    metric.update(right, right, tokens)
    assert metric.compute() == 1
    wrong = torch.tensor([[0, 1, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]])  # breaks one token in each of two rows
    metric.reset()
    metric.update(wrong, right, tokens)
    assert metric.compute() == 0.5


def test_padding_does_not_reach_results() -> None:
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"epochs": 1}))
    tagging.fit(Split(sentences(20)))
    examples = sentences(7, seed=9)
    together = tagging.predict(examples)
    assert together == [tagging.predict([each])[0] for each in examples]
    assert [len(labels) for labels in together] == [len(each.units) for each in examples]


def test_label_only_in_dev(tmp_path: Path) -> None:
    train = write_conllu(tmp_path / "train.conllu", sentences(10))
    dev = write_conllu(tmp_path / "dev.conllu", [Tagged(("the", "cat"), ("DET", "NOUNN"))])
    options = TaggingOptions.from_mapping(QUICK | {"data": str(train), "dev": str(dev)})
    message = r"dev\.conllu:4: label 'NOUNN' was not among the 3 labels of the training data \(NOUN, VERB, DET\);"
    with pytest.raises(DataError, match=message):
        Tagging(options).fit(run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_nothing_to_train_on() -> None:
    with pytest.raises(UserError, match="tagging: wanted examples to train on, got none"):
        Tagging(TaggingOptions()).fit(Split([]))


def test_dev_without_data() -> None:
    with pytest.raises(OptionError, match="--dev and --test go with --data; give the file to train on, too"):
        Tagging(TaggingOptions(dev="dev.tsv")).fit()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_device_that_is_not_there() -> None:
    with pytest.raises(OptionError, match="device: cuda was asked for, and torch finds no such device here; use cpu"):
        Tagging(TaggingOptions(device="cuda")).fit(Split(sentences(5)))


def test_random_state_of_the_caller_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Tagging(TaggingOptions.from_mapping(QUICK | {"epochs": 1, "dropout": 0.5})).fit(Split(sentences(5)))
    assert torch.equal(torch.rand(3), expected)
