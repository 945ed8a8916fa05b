"""Labels and tokens that the training data lacks: labels count as errors; warnings name them with their counts."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from glassgate.cli import main
from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.data import store, unknown
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.unknown import unknown_fraction, unknown_tokens_note
from glassgate.tasks.metrics.scores import MacroF1
from glassgate.tasks.metrics.summary import LabelSummary
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.task import Split

SIZES = {"hidden_size": 8, "embedding_size": 8, "learning_rate": 0.05, "batch_size": 4, "threads": 1}
TAGGER = TaggingOptions.from_mapping(SIZES | {"character_size": 0, "dropout": 0.0, "epochs": 8})
TRAIN = [Tagged(["the", "cat"], ["DET", "NOUN"]), Tagged(["cat", "the"], ["NOUN", "DET"])] * 8
TEST = [Tagged(["the", "cat"], ["DET", "NOUN"]), Tagged(["the", "sat", "oh"], ["DET", "VERB", "VERB"])]
SAID = (
    r"has 1 label that the training data lacks, VERB \(2 times\), so 2 of 5 answers must be wrong; check with "
    "`glassgate look` that the right column is read, or train with examples of each"
)


def f1_by_hand(said: Sequence[str], right: Sequence[str]) -> float:
    pairs = list(zip(said, right, strict=True))
    scores = []
    for label in {*said, *right}:
        hits = sum(one == other == label for one, other in pairs)
        scores.append(2 * hits / (said.count(label) + right.count(label)))
    return sum(scores) / len(scores)


def test_a_training_continues_with_a_warning() -> None:
    task = Tagging(TAGGER)
    result = task.fit(Split(TRAIN, TEST, TEST))
    said = [label for labels in task.predict(TEST) for label in labels]
    right = [label for each in TEST for label in each.labels or ()]
    assert result["test"] == pytest.approx({"accuracy": 0.6, "macro_f1": f1_by_hand(said, right)})
    assert result["dev"] == result["test"]
    assert [each[:13] for each in result["warnings"][:2]] == ["the dev data ", "the test data"]
    with pytest.warns(UserWarning, match="the data " + SAID):
        assert task.evaluate(TEST) == result["test"]
    assert task.evaluate(TRAIN)["accuracy"] == 1
    assert LabelSummary(task).labels() == [*task.vocabularies["labels"].symbols, "not in training"]
    assert sum(LabelSummary(task).matrix(task.encoded(TEST))[2]) == 2


@pytest.mark.parametrize("head", ["softmax", "crf"])
def test_entities_of_unseen_types_are_missed(head: str) -> None:
    """The entities are one correct, one of an unseen type, and one predicted where the true label is not valid BIO."""
    train = [Tagged(["go", "rome"], ["O", "B-LOC"], intent="ask"), Tagged(["go", "on"], ["O", "O"], intent="tell")] * 8
    strange = [("B-LOC", "ask"), ("B-PER", "tell"), ("PLACE", "shout")]
    test = [Tagged(["go", "rome"], ["O", label], intent=intent) for label, intent in strange]
    task = Tagging(TaggingOptions.from_mapping(TAGGER.to_mapping() | {"head": head, "epochs": 20}))
    result = task.fit(Split(train, test, test))
    expected = {"precision": 1 / 3, "recall": 1 / 2, "f1": 2 / 5, "intent_accuracy": 1 / 3, "frame_accuracy": 1 / 3}
    assert result["test"] == pytest.approx(expected | {"accuracy": 4 / 6})
    assert "2 labels that the training data lacks, B-PER (1 time), PLACE (1 time), so 2 of 6" in result["warnings"][2]
    assert "1 intent that the training data lacks, shout (1 time), so 1 of 3" in result["warnings"][3]


def test_classes_that_are_not_in_the_training_data() -> None:
    train = [Labelled("a fine day", "good"), Labelled("a foul day", "bad")] * 8
    test = [Labelled("a fine day", "good"), Labelled("a foul day", "bad"), Labelled("a foul week", "new")]
    options = ClassificationOptions.from_mapping(SIZES | {"least_count": 1, "epochs": 8})
    task = Classification(options)
    result = task.fit(Split(train, test, test))
    assert result["test"] == pytest.approx({"accuracy": 2 / 3, "macro_f1": (1 + 2 / 3 + 0) / 3})
    assert "the test data has 1 label" in result["warnings"][1]


def test_evaluate_and_report_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results are the same for examples in memory and on disk."""
    monkeypatch.chdir(tmp_path)
    Path("train.tsv").write_text("the\tDET\ncat\tNOUN\n\n" * 16)
    Path("test.tsv").write_text("the\tDET\ncat\tNOUN\n\nthe\tDET\nsat\tVERB\noh\tVERB\n")
    options = "--hidden-size 8 --embedding-size 8 --character-size 0 --epochs 3 --learning-rate 0.1 --threads 1"
    main(f"train tagging --data train.tsv --test test.tsv --run run {options}".split())
    assert "warning: the test data has 1 label" in capsys.readouterr().out
    for large in (store.LARGE, 1):
        monkeypatch.setattr(store, "LARGE", large)
        main(["evaluate", "run", "test.tsv", "--json"])
        said = capsys.readouterr()
        assert json.loads(said.out)["accuracy"] == pytest.approx(0.6)
        assert "warning: test.tsv has 1 label" in said.err
    main(["report", "run", "--file", "test.tsv", "--output", "page.html"])
    assert Path("page.html").exists()


def test_scores_per_label_are_those_of_torchmetrics() -> None:
    import torch
    from torchmetrics.classification import MulticlassF1Score, MulticlassPrecision, MulticlassRecall

    torch.manual_seed(0)
    ours, macro = MacroF1("abcdefghi"), MulticlassF1Score(9, average="macro", ignore_index=-100)
    kinds = (MulticlassPrecision, MulticlassRecall, MulticlassF1Score)
    theirs = [kind(9, average="none", ignore_index=-100) for kind in kinds]
    supports = torch.zeros(9, dtype=torch.long)
    for _ in range(3):
        preds, target = torch.randint(6, (4, 7)), torch.randint(7, (4, 7))
        target[0, :3] = -100
        supports += target[target >= 0].bincount(minlength=9)
        for metric in (ours, macro, *theirs):
            metric.update(preds, target)
    assert float(ours.compute()) == pytest.approx(float(macro.compute()))
    rows = ours.by_label()
    assert sorted(rows) == list("abcdefg")  # the other labels neither occur nor were predicted
    assert [each["support"] for each in rows.values()] == sorted(supports[:7].tolist(), reverse=True)
    for place, name in enumerate("abcdefg"):
        scores = [float(metric.compute()[place]) for metric in theirs]
        assert [rows[name][key] for key in ("precision", "recall", "f1")] == pytest.approx(scores)
        assert rows[name]["support"] == supports[place]


def test_fraction_of_unknown_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown, "_BLOCK_SIZE", 2)
    encoded = [{"units": np.array([1, 5, 1])}, {"units": np.array([2])}]
    assert unknown_fraction("units", encoded) == 0.5
    assert unknown_fraction("units", []) is None
    assert unknown_fraction("units", [{"series": np.zeros((2, 3))}]) is None
    assert unknown_fraction("series", [{"series": np.zeros((2, 3))}]) is None


def test_note_on_many_unknown_tokens() -> None:
    assert unknown_tokens_note(None, "a.txt") == unknown_tokens_note(0.29, "a.txt") == ""
    assert unknown_tokens_note(0.3, "a.txt").startswith("30% of the tokens of a.txt are not in the training data")
