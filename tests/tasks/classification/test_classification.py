"""A classifier learns with every pooling. Padding, scale and the order of examples do not change its results."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from glassgate.tasks.classification import POOLINGS, Classification, ClassificationOptions
from glassgate.tasks.classification import task as task_module
from glassgate.tasks.data.batches import collate
from glassgate.tasks.data.batching import Piece
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.vocabulary import FIRST, UNKNOWN
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.metrics.summary import LabelSummary
from glassgate.tasks.pictures import charts as pictures
from glassgate.tasks.task import Split
from tests.tasks.corpus import embedded

QUICK = {"hidden_size": 8, "embedding_size": 8, "learning_rate": 0.03, "least_count": 1, "batch_size": 8, "epochs": 8}
FILLING = ["so", "it", "was", "then", "and", "there"]


def texts(count: int, seed: int = 0) -> list[Labelled]:
    """Return sentences of random words, one of which determines the label."""
    random = np.random.default_rng(seed)
    examples = []
    for _ in range(count):
        label = str(random.choice(["good", "bad", "odd"]))
        words = list(random.choice(FILLING, int(random.integers(1, 9))))
        words.insert(int(random.integers(len(words) + 1)), label + "ly")
        examples.append(Labelled(" ".join(words), label))
    return examples


def series(count: int, seed: int = 0) -> list[Labelled]:
    """Return series of two channels of very different scale: a wave, whose speed is the label, and noise."""
    random = np.random.default_rng(seed)
    examples = []
    for number in range(count):
        steps = np.arange(random.integers(12, 20))
        wave = np.sin(steps * (0.4, 1.2)[number % 2]) + 0.1 * random.normal(size=len(steps))
        values = np.stack([1000 + 50 * wave, 1e-3 * random.normal(size=len(steps))], 1)
        examples.append(Labelled(values.astype(np.float32), ("slow", "fast")[number % 2]))
    return examples


def trained(train: list[Labelled], **options: object) -> Classification:
    """Return a small trained classifier."""
    task = Classification(ClassificationOptions.from_mapping(QUICK | options))
    task.fit(Split(train))
    return task


@pytest.fixture(scope="module")
def attentive() -> Classification:
    return trained(texts(150), pooling="attention")


def test_attention_weights(attentive: Classification) -> None:
    example = texts(1)[0]
    (answer,), shown = attentive.predict([example]), attentive.attend(example)
    assert shown.target == [answer.label]
    assert shown.weights.tolist() == [answer.attention]
    assert " ".join(shown.source) == example.content
    with pytest.raises(
        OptionError, match="pooling: expected a run with attention, got last; train with --pooling attention"
    ):
        trained(texts(8), epochs=1, pooling="last").attend(example)


def _poolings_and_cells() -> Iterator[Any]:
    """Yield each pooling with one cell, and with the mark `matrix` with the other cell."""
    for position, pooling in enumerate(POOLINGS):
        for number, cell in enumerate(("lstm", "gru")):
            yield pytest.param(pooling, cell, marks=() if position % 2 == number else pytest.mark.matrix)


@pytest.mark.parametrize(("pooling", "cell"), [*_poolings_and_cells()])
def test_learns_texts(pooling: str, cell: str) -> None:
    task = Classification(ClassificationOptions.from_mapping(QUICK | {"pooling": pooling, "cell": cell}))
    result = task.fit(Split(texts(150), texts(30, seed=1), texts(60, seed=2)))
    assert result["test"]["macro_f1"] > 0.95
    assert result["test"]["accuracy"] > 0.95


@pytest.mark.parametrize("pooling", POOLINGS)
def test_learns_series(pooling: str) -> None:
    task = trained(series(80), pooling=pooling, epochs=15, num_layers=2)
    assert task.evaluate(series(40, seed=1))["accuracy"] > 0.9


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("both", [True, False])
def test_padding_changes_nothing(pooling: str, both: bool) -> None:
    task = trained(texts(20), pooling=pooling, epochs=1, bidirectional=both, num_layers=2)
    examples = texts(20, seed=3)
    for together, each in zip(task.predict(examples), examples, strict=True):
        alone = task.predict([each])[0]
        assert together.label == alone.label
        assert together.probabilities == pytest.approx(alone.probabilities, rel=1e-4)
        assert sum(together.probabilities.values()) == pytest.approx(1)


def test_last_is_the_last_step_of_each_direction() -> None:
    task = trained(texts(20), epochs=1, num_layers=2, pooling="last", linear=False)
    batch = {"units": torch.tensor([[2, 3, 4, 0], [2, 3, 4, 5]]), "lengths": torch.tensor([3, 4])}
    network = task.network.eval()
    with torch.no_grad():
        output, _ = network.encoder(network.embedding(batch["units"]), lengths=batch["lengths"])
        ends = torch.stack([output[0, 2], output[1, 3]])[:, :8]
        expected = network.head(torch.cat([ends, output[:, 0, 8:]], 1))
        torch.testing.assert_close(network(batch).values, expected)


@pytest.mark.parametrize("labels", [("good", "bad"), ("good", "bad", "odd")])
def test_networks_of_many_texts_are_averaged_with_a_logistic_regression(
    labels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the network is of no use, dev data leave only the logistic regression. Without them, the share is half."""
    monkeypatch.setattr(task_module, "MAX_EXAMPLES", 0)  # no ridge regression is fitted before training
    rows, others = ([each for each in texts(90, seed) if each.label in labels] for seed in (0, 1))
    task = trained(rows)
    network, train, dev = task.network.eval(), task.encoded(rows), task.encoded(others)
    learned = network.head.weight.detach().clone()
    assert " 50% " in task.refine(train, dev[:5])
    torch.testing.assert_close(network.head.weight, learned / 2)
    with torch.no_grad():
        network.head.weight.normal_(0, 10)
    assert " 0% " in task.refine(train, dev)
    assert not network.head.weight.any()

    fields, more = (
        collate(part, [Piece(k, 0, len(each["units"])) for k, each in enumerate(part)], task.padding)
        for part in (train, dev)
    )
    model = LogisticRegression(C=10, tol=1e-6, max_iter=1000).fit(
        network.linear.features(fields["units"]) / 10, fields["label"]
    )
    expected = torch.from_numpy(model.predict_proba(network.linear.features(more["units"]) / 10))
    torch.testing.assert_close(network(more).values.softmax(1).double(), expected, rtol=0.02, atol=0.01)
    assert trained(rows, pooling="attention", epochs=1).refine(train, dev) == ""


def test_some_words_are_unknown_in_training() -> None:
    network = trained(texts(20), epochs=1, word_dropout=0.3).network
    batch = {"units": torch.arange(2, 6).repeat(1, 500), "lengths": torch.tensor([2000])}
    dropped = embedded(network.train(), batch)
    assert set(dropped.unique().tolist()) == {UNKNOWN, 2, 3, 4, 5}
    assert float((dropped == UNKNOWN).float().mean()) == pytest.approx(0.3, abs=0.05)
    assert embedded(network.eval(), batch) is batch["units"]


def test_the_linear_map_reads_the_tf_idf_of_the_tokens() -> None:
    """Each token occurs at most once in a text, so the estimated document frequency is exact."""
    rows = [Labelled(text, label) for text, label in (("a b", "x"), ("a c d", "y"), ("a d", "x"), ("e", "y"))]
    task = trained(rows, linear=True)
    network, vocabulary = task.network.eval(), task.vocabularies["units"]
    vectors = TfidfVectorizer(analyzer=str.split, vocabulary=vocabulary.symbols).fit_transform(
        [str(each.content) for each in rows]
    )
    expected = 10 * torch.from_numpy(vectors.toarray()).float() @ network.linear.weight[FIRST:]
    units = torch.zeros(4, 3, dtype=torch.long)
    for unit, row in zip(units, rows, strict=True):
        tokens = task.encode(row)["units"]
        unit[: len(tokens)] = torch.from_numpy(tokens)
    torch.testing.assert_close(network.linear(units).sum(1), expected, rtol=1e-4, atol=1e-5)
    assert not network.linear(torch.zeros_like(units)).any()  # a text without tokens
    assert expected.abs().max() > 1e-2
    batch = {"units": units, "lengths": (units > 0).sum(1)}
    with_map = network(batch).values
    network.linear = None
    torch.testing.assert_close(with_map - network(batch).values, expected, rtol=1e-4, atol=1e-5)


def test_training_corrects_a_ridge_regression_on_the_other_texts() -> None:
    rows = texts(40)
    task = trained(rows, epochs=1, word_dropout=0)
    network, left_out = task.network, torch.tensor(task.fitted["left_out"])
    fields = task.encode_split(Split(rows))["train"]
    batch = collate(fields, [Piece(k, 0, len(each[next(iter(each))])) for k, each in enumerate(fields)], task.padding)
    torch.testing.assert_close(batch["linear"], left_out)
    assert (left_out.argmax(1) == batch["label"]).float().mean() > 0.6
    whole = network.eval().encode(batch)[2]
    assert (whole.argmax(1) == batch["label"]).float().mean() > 0.9
    assert not torch.isclose(whole, left_out).any()
    torch.testing.assert_close(network.train().encode(batch)[2], left_out)
    assert not any(each.requires_grad for each in network.linear.parameters())
    assert "ridge" not in trained(rows, epochs=1, pooling="attention").fitted


def test_the_share_of_the_correction() -> None:
    """Where the network sees the wrong labels, dev data leave only the ridge regression and the label frequencies."""
    rows = texts(60)
    task = trained(rows)
    network, dev = task.network, task.encoded(texts(40, seed=1))
    train = task.encode_split(Split(rows))["train"]
    learned = network.head.weight.detach().clone()
    task.refine(train, dev[:5])
    torch.testing.assert_close(network.head.weight, learned / 2)
    with torch.no_grad():
        network.head.weight.normal_(0, 10)
    assert " 0% " in task.refine(train, dev)
    assert not network.head.weight.any()
    counts = [sum(each.label == label for each in rows) for label in task.vocabularies["labels"].symbols]
    torch.testing.assert_close(network.head.bias.exp(), torch.tensor(counts) / len(rows))


def test_networks_without_a_linear_map(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trained(texts(20), epochs=1, linear=False).network.linear is None
    assert trained(series(20), epochs=1, linear=False).network.linear is None
    monkeypatch.setattr("glassgate.tasks.networks.maps.MAX_TOKEN_WEIGHTS", 5)
    assert trained(texts(20), epochs=1).network.linear is None
    monkeypatch.setattr("glassgate.tasks.classification.task.MAX_EXAMPLES", 19)
    assert trained(series(20), epochs=1).network.linear is None


def test_the_number_of_texts_determines_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Labelled("often once", "x"), Labelled("often twice", "y"), Labelled("twice", "y")]
    for limit, expected in ((3, ["often", "twice", "once"]), (2, ["often", "twice"])):
        monkeypatch.setattr("glassgate.tasks.labelled.task.MANY_TEXTS", limit)
        assert trained(rows, epochs=1, least_count=0).vocabularies["units"].symbols == expected


def test_attention(attentive: Classification) -> None:
    examples = texts(30, seed=4)
    right = 0
    for example, answer in zip(examples, attentive.predict(examples), strict=True):
        words = str(example.content).split()
        assert answer.attention is not None
        assert len(answer.attention) == len(words)
        assert sum(answer.attention) == pytest.approx(1, rel=1e-4)
        right += words[int(np.argmax(answer.attention))].endswith("ly")
    assert right > 10
    line = attentive.text(examples[0], attentive.predict(examples[:1])[0])
    label, chance, weights = line.split("\t")
    assert label in ("good", "bad", "odd")
    assert 0 <= float(chance) <= 1
    assert [each.rsplit(":", 1)[0] for each in weights.split(" ")] == str(examples[0].content).split()
    assert trained(texts(20), epochs=1).predict(examples)[0].attention is None


def test_scores_and_confusion_equal_a_manual_computation(tmp_path: Path) -> None:
    task = trained(texts(30), epochs=2)
    examples = texts(80, seed=5)
    pairs = [(each.label, answer.label) for each, answer in zip(examples, task.predict(examples), strict=True)]
    labels = task.vocabularies["labels"].symbols
    counts = [[pairs.count((true, given)) for given in labels] for true in labels]
    encoded = [task.encode(each) for each in examples]
    assert LabelSummary(task).matrix(encoded) == counts
    f1 = [2 * counts[k][k] / (sum(counts[k]) + sum(row[k] for row in counts)) for k in range(3)]
    assert task.evaluate(examples)["macro_f1"] == pytest.approx(sum(f1) / 3)
    files = task.summary.write(encoded, tmp_path)
    assert json.loads(files[0].read_text()) == {"labels": labels, "counts": counts}


def test_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures.confusion_picture([[3, 1], [0, 2]], ["good", "bad"], tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    pictures.confusion_picture([[3, 1], [0, 2]], ["good", "bad"], tmp_path / "a.svg")
    assert "<svg" in (tmp_path / "a.svg").read_text()
    with pytest.warns(UserWarning, match=r"b\.png: no installed font has '\U00012000'; install one") as warned:
        pictures.confusion_picture([[3, 1], [0, 2]], ["\U00012000\U00012001", "bad"], tmp_path / "b.png")
    assert len(warned) == 1


def test_saved_and_loaded(tmp_path: Path) -> None:
    for number, examples in enumerate((texts(20), series(20))):
        task = trained(examples, epochs=1)
        task.save(tmp_path / str(number))
        assert Classification.load(tmp_path / str(number)).predict(examples) == task.predict(examples)


def test_series_are_scaled_by_the_training_data_only() -> None:
    task = trained(series(20), epochs=1)
    stacked = np.concatenate([task.encode(each)["series"] for each in series(20)])
    assert stacked.mean(0) == pytest.approx(0, abs=1e-3)
    assert stacked.std(0) == pytest.approx(1, rel=1e-3)
    assert trained([Labelled(np.ones((3, 1)), "a"), Labelled(np.ones((3, 1)), "b")], epochs=1).predict(series(0)) == []


def test_series_of_other_shapes_than_in_training() -> None:
    task = trained(texts(20), epochs=1)
    with pytest.raises(DataError, match=r"test\.csv:7: expected a text, as in training, got a series"):
        task.predict([Labelled(np.ones((3, 1)), None, "test.csv", 7)])
    with pytest.raises(DataError, match=r"given examples: the text is empty; remove it"):
        task.predict([Labelled(" ")])
    waves = trained(series(20), epochs=1)
    with pytest.raises(DataError, match=r"a\.ts:3: expected a series of 2 channels, as in training, got 5"):
        waves.predict([Labelled(np.ones((3, 5)), None, "a.ts", 3)])
    with pytest.raises(DataError, match=r"a\.ts:3: expected a series of 2 channels, as in training, got a text"):
        waves.predict([Labelled("text", None, "a.ts", 3)])
    with pytest.raises(DataError, match="expected at least 2 different labels, got a; add examples"):
        trained([Labelled("x", "a")])


def test_part_of_the_data_is_held_out(tmp_path: Path) -> None:
    rows = [f"{each.content}\t{each.label}\n" for each in sorted(texts(100), key=lambda each: str(each.label))]
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "".join(rows))
    task = Classification(ClassificationOptions.from_mapping(QUICK | {"data": str(tmp_path / "a.tsv"), "epochs": 1}))
    result = task.fit(run=tmp_path / "run")
    assert result["dev"].keys() == result["test"].keys() == {"accuracy", "macro_f1"}
    assert len(json.loads((tmp_path / "run" / "confusion.json").read_text())["labels"]) == 3
