"""A tagger reads in both directions, its scores equal a manual computation, and it rejects invalid examples."""

import math
import random
from pathlib import Path

import pytest
import torch

from glassgate.tasks.data.bio import is_valid
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.vocabulary import FIRST, UNKNOWN
from glassgate.tasks.errors import DataError, OptionError, UserError
from glassgate.tasks.metrics.summary import LabelSummary
from glassgate.tasks.progress import Progress
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.tagging.network import Tagger
from glassgate.tasks.tagging.scores import WholeTokens
from glassgate.tasks.task import Split
from tests.tasks.corpus import embedded, sentences

QUICK = {
    "hidden_size": 16,
    "embedding_size": 8,
    "character_size": 0,
    "dropout": 0.0,
    "learning_rate": 0.03,
    "batch_size": 8,
    "epochs": 5,
}


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_it_learns(cell: str) -> None:
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"cell": cell}))
    result = tagging.fit(Split(sentences(200), sentences(20, seed=1), sentences(50, seed=2)))
    assert result["test"]["accuracy"] > 0.99
    assert result["history"][0]["loss"] > result["history"][-1]["loss"]


def test_future_matters() -> None:
    """The first label depends on the last letter, so only a network that reads in both directions can predict it."""
    letters = [Tagged(f"{'?'}xy{last}", [last, "n", "n", "n"]) for last in "ab"] * 30
    scores = {}
    for both in (True, False):
        tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"bidirectional": both, "epochs": 15}))
        scores[both] = tagging.fit(Split(letters, test=letters))["test"]["accuracy"]
    assert scores[True] == 1
    assert scores[False] < 0.9


def test_scores_equal_a_manual_computation() -> None:
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
    symbols = tagging.vocabularies["labels"].symbols
    counted = [[pairs.count((said, right)) for said in symbols] for right in symbols]
    assert LabelSummary(tagging).matrix([tagging.encode(each) for each in examples]) == counted


def test_whole_tokens() -> None:
    metric = WholeTokens()
    tokens = torch.tensor([[0, 0, -1, 1], [0, 1, 1, 1], [-1, -1, -1, -1]])
    right = torch.zeros(3, 4, dtype=torch.long)
    metric.update(right, right, tokens)
    assert metric.compute() == 1
    wrong = torch.tensor([[0, 1, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]])  # one token in each of two rows becomes wrong
    metric.reset()
    metric.update(wrong, right, tokens)
    assert metric.compute() == 0.5


def test_padding_does_not_reach_results() -> None:
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"epochs": 1}))
    tagging.fit(Split(sentences(20)))
    examples = sentences(7, seed=9)
    together = tagging.predict(examples)
    assert together == [tagging.predict([each])[0] for each in examples]
    assert [len(labels) for labels in together] == [len(each.tokens) for each in examples]


def test_characters_distinguish_unknown_words() -> None:
    """The last letter determines the label, and no test word is in the training data."""

    def words(first: int, count: int) -> list[Tagged]:
        draw = random.Random(first)
        made = [f"w{number:04d}{draw.choice('ab')}" for number in range(first, first + count)]
        return [Tagged(made[at : at + 4], [f"L{word[-1]}" for word in made[at : at + 4]]) for at in range(0, count, 4)]

    scores = {}
    for size in (0, 8):
        tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"character_size": size, "epochs": 10}))
        scores[size] = tagging.fit(Split(words(0, 200), test=words(400, 80)))["test"]["accuracy"]
    assert scores[8] > 0.95
    assert scores[0] < 0.7


def test_the_vector_of_a_word_does_not_depend_on_its_position() -> None:
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"character_size": 4, "epochs": 1}))
    tagging.fit(Split(sentences(20)))
    spelling = tagging.network.spelling.eval()
    rows = [tagging.encode(Tagged(tokens, None))["characters"] for tokens in (["cat", "sees"], ["x" * 40, "cat"])]
    assert rows[1].shape == (2, 32)  # a long word loses its middle
    padded = torch.zeros(2, 2, 32, dtype=torch.long)
    for row, each in zip(padded, rows, strict=True):
        row[:, : each.shape[1]] = torch.from_numpy(each)
    vectors = spelling(padded)
    assert vectors.shape == (2, 2, 8)
    assert torch.equal(vectors[0, 0], vectors[1, 1])
    assert not torch.equal(vectors[0, 0], vectors[0, 1])
    alone = spelling(padded[:1, :1, :3])
    assert torch.allclose(vectors[0, 0], alone[0, 0], atol=1e-6)


def test_singletons_train_the_unknown_token() -> None:
    """Every noun occurs once. Without singleton dropout, the embedding of the unknown token keeps its initial value."""
    nouns = [Tagged(["the", f"n{number}", "sees"], ["DET", "NOUN", "VERB"]) for number in range(60)]
    nouns += [Tagged(["sees"], ["VERB"])] * 20 + [Tagged(["the"], ["DET"])] * 20
    for share in (0.0, 0.5):
        tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"singleton_dropout": share, "weight_decay": 0.0}))
        tagging.fit(Split(nouns, [Tagged(["the"], ["DET"])]))
        without = Tagger(tagging.options, 6, 8, ["A"], first_singleton=6)
        assert tagging.fitted["singletons"] == FIRST + 2
        batch = {"units": torch.tensor([[2, 3, 4, 5] * 500]), "lengths": torch.tensor([2000])}
        batch["characters"] = torch.full((1, 2000, 1), UNKNOWN)
        noisy = embedded(tagging.network.train(), batch)
        assert (noisy[0].view(-1, 4)[:, :2] == torch.tensor([2, 3])).all()
        assert float((noisy == UNKNOWN).float().mean()) == pytest.approx(share / 2, abs=0.03)
        assert embedded(without.train(), batch) is batch["units"]
        assert embedded(tagging.network.eval(), batch) is batch["units"]
        assert tagging.predict([Tagged(["the", "daisy", "sees"], None)]) == [["DET", "NOUN", "VERB"]] or not share


@pytest.mark.parametrize("head", ["softmax", "crf"])
def test_heads_learn(head: str) -> None:
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"head": head}))
    result = tagging.fit(Split(sentences(200), test=sentences(50, seed=2)))
    assert result["test"]["accuracy"] > 0.99


def test_the_crf_learns_dependencies_between_labels() -> None:
    """Two sequences of labels are equally likely and never mixed. A CRF predicts one of them completely."""
    both = [Tagged(["x"] * 6, [label] * 6) for label in "AB"] * 40
    options = QUICK | {"head": "crf", "epochs": 10}
    tagging = Tagging(TaggingOptions.from_mapping(options))
    tagging.fit(Split(both))
    transitions = tagging.network.crf.transitions.detach()
    assert transitions.diagonal().min() > transitions.fliplr().diagonal().max() + 1
    assert len(set(tagging.predict([Tagged(["x"] * 6, None)])[0])) == 1


def entities(count: int, seed: int = 0) -> list[Tagged]:
    """Return sentences with names of one or two words after a title. The last word determines the intent."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        words, labels = [], []
        for _ in range(draw.randint(1, 3)):
            title, kind = draw.choice([("mr", "PER"), ("to", "LOC")])
            names = draw.sample(["ann", "lee", "paris", "kim"], draw.randint(1, 2))
            words += [title, *names]
            labels += ["O", f"B-{kind}", *[f"I-{kind}"] * (len(names) - 1)]
        intent = draw.choice(["ask", "tell"])
        made.append(Tagged([*words, "?" if intent == "ask" else "."], [*labels, "O"], intent=intent))
    return made


def without_intents(examples: list[Tagged]) -> list[Tagged]:
    return [Tagged(each.tokens, each.labels) for each in examples]


@pytest.mark.parametrize("head", ["softmax", "crf"])
def test_entities_and_intents_together(head: str, tmp_path: Path) -> None:
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"head": head, "epochs": 8, "character_size": 4}))
    result = tagging.fit(Split(entities(200), entities(30, seed=1), entities(50, seed=2)), run=tmp_path / "run")
    names = {"accuracy", "precision", "recall", "f1", "intent_accuracy", "frame_accuracy"}
    assert result["test"].keys() == names
    assert min(result["test"][name] for name in names) > 0.95
    assert tagging.monitor == "frame_accuracy"
    loaded = Tagging.load(tmp_path / "run")
    examples = entities(20, seed=3)
    for one, other in zip(tagging.predict(examples), loaded.predict(examples), strict=True):
        assert (one, one.intent) == (other, other.intent)
    assert loaded.evaluate(examples) == tagging.evaluate(examples)
    frames = [
        said == each.labels and said.intent == each.intent
        for said, each in zip(tagging.predict(examples), examples, strict=True)
    ]
    assert loaded.evaluate(examples)["frame_accuracy"] == pytest.approx(sum(frames) / len(frames))
    lines = tagging.text(examples[0], tagging.predict(examples[:1])[0]).splitlines()
    assert lines[0] == f"# intent = {examples[0].intent}"
    assert len(lines) == 1 + len(examples[0].tokens)


def test_padding_does_not_reach_intents() -> None:
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"epochs": 1}))
    tagging.fit(Split(entities(20)))
    long, short = (Tagged(words, None) for words in (["mr", "ann", "lee", "."], ["to"]))
    (together, _, _) = next(tagging.outputs([tagging.encode(each) for each in (long, short)]))
    (alone, _, _) = next(tagging.outputs([tagging.encode(short)]))
    assert torch.allclose(together.intents[1], alone.intents[0], atol=1e-6)


def test_monitored_score() -> None:
    for examples, monitor in ((without_intents(entities(5)), "f1"), (sentences(5), "accuracy")):
        tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"epochs": 1}))
        assert monitor in tagging.fit(Split(examples, examples))["dev"]
        assert tagging.monitor == monitor


@pytest.mark.parametrize("head", ["softmax", "crf"])
def test_results_are_valid_bio(head: str) -> None:
    """An untrained network scores all paths nearly equally. Unconstrained, some predictions would be invalid."""
    valid = {}
    for transitions in ("any", "bio", "auto"):
        options = QUICK | {"head": head, "transitions": transitions, "epochs": 1, "learning_rate": 0.0}
        tagging = Tagging(TaggingOptions.from_mapping(options))
        tagging.fit(Split(without_intents(entities(10))))
        labels = tagging.predict(without_intents(entities(50, seed=1)))
        valid[transitions] = all(is_valid(each) for each in labels)
    assert valid == {"any": False, "bio": True, "auto": True}


def test_auto_leaves_data_that_breaks_bio_alone() -> None:
    old = [Tagged(["a", "b"], ["I-X", "B-X"]), Tagged(["a", "b"], ["O", "I-X"])]  # IOB1
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"epochs": 20}))
    tagging.fit(Split(old * 10))
    assert tagging.predict([Tagged(["a", "b"], None)])[0][0] in ("I-X", "O")
    assert not tagging.fitted["valid"]
    assert tagging.monitor == "f1"


def test_bio_option_with_other_labels() -> None:
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"transitions": "bio"}))
    with pytest.raises(OptionError, match=r"transitions: bio goes with labels such as B-X, I-X and O, got NOUN, VERB"):
        tagging.fit(Split(sentences(5)))


def test_long_training_sequences_are_cut_with_both_heads() -> None:
    for head in ("softmax", "crf"):
        tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"head": head, "longest": 3, "epochs": 2}))
        result = tagging.fit(Split(entities(20)))
        assert math.isfinite(result["history"][-1]["loss"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Tagged([], [], source="a.conll", lines=7), r"a\.conll:7: the sequence has no tokens; remove it"),
        (Tagged([""], ["O"]), "expected an intent"),
        (Tagged(["a", "b"], ["O"]), "given examples:1: expected 2 labels, one for each token, got 1"),
        (
            Tagged(["a"], ["O"], source="a", lines=(3,)),
            r"a:3: expected an intent, .* write `# intent = NAME`",
        ),
    ],
)
def test_invalid_examples(wrong: Tagged, message: str) -> None:
    examples = entities(40)
    tagging = Tagging(TaggingOptions.from_mapping(QUICK))
    with pytest.raises(DataError, match=message):
        tagging.fit(Split(examples, test=[wrong]))


def test_examples_without_labels_to_train_on() -> None:
    with pytest.raises(DataError, match=r"given examples:1: expected labels to train on, one for each token, got none"):
        Tagging(TaggingOptions.from_mapping(QUICK)).fit(Split([*sentences(3), Tagged(["a"], None)]))


def test_units_without_characters() -> None:
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"character_size": 2, "epochs": 1}))
    tagging.fit(Split(sentences(5)))
    assert len(tagging.predict([Tagged([""], None)])[0]) == 1


def test_pretrained_vectors(tmp_path: Path) -> None:
    class Notes(Progress):
        def __init__(self) -> None:
            self.texts: list[str] = []

        def note(self, text: str) -> None:
            self.texts.append(text)

    file = tmp_path / "glove.txt"
    file.write_text("cat 1 2 3 4 5\nsees 5 4 3 2 1\n")
    options = QUICK | {"vectors": str(file), "epochs": 1, "learning_rate": 0.0}
    del options["embedding_size"]
    tagging, notes = Tagging(TaggingOptions.from_mapping(options)), Notes()
    tagging.fit(Split(sentences(40)), run=tmp_path / "run", progress=notes)
    numbers = tagging.vocabularies["units"].encode(["cat", "sees"]).tolist()
    weight = tagging.network.embedding.weight
    assert weight[numbers].tolist() == [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]]
    assert weight[0].tolist() == [0] * 5
    assert f"{file}: {tagging.fitted['vectors']}" in notes.texts
    assert tagging.fitted["vectors"].startswith("vectors of 5 numbers for 2 of 10 words (20.0%)")
    file.unlink()
    assert torch.equal(Tagging.load(tmp_path / "run").network.embedding.weight, weight)


def test_pretrained_vectors_of_another_size(tmp_path: Path) -> None:
    file = tmp_path / "glove.txt"
    file.write_text("cat 1 2 3 4 5\n")
    tagging = Tagging(TaggingOptions.from_mapping(QUICK | {"vectors": str(file)}))
    message = r"embedding_size: .*glove\.txt has vectors of 5 numbers, got 8; leave it out, the file sets it"
    with pytest.raises(OptionError, match=message):
        tagging.fit(Split(sentences(5)), run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_empty_training_data() -> None:
    with pytest.raises(UserError, match="tagging: expected examples to train on, got none"):
        Tagging(TaggingOptions()).fit(Split([]))


def test_a_single_label() -> None:
    with pytest.raises(DataError, match="given examples: expected at least 2 different labels, got X; add examples"):
        Tagging(TaggingOptions()).fit(Split([Tagged(("a", "b"), ("X", "X"))]))


def test_dev_without_data() -> None:
    with pytest.raises(OptionError, match="--dev and --test need --data; give the training file, too"):
        Tagging(TaggingOptions(dev="dev.tsv")).fit()


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_missing_device(device: str, tmp_path: Path) -> None:
    if (torch.cuda if device == "cuda" else torch.backends.mps).is_available():
        pytest.skip(f"there is {device}")
    with pytest.raises(OptionError, match=f"device: expected an available device, got {device}; choose cpu"):
        Tagging(TaggingOptions(device=device)).fit(Split(sentences(5)), run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_random_state_of_the_caller_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Tagging(TaggingOptions.from_mapping(QUICK | {"epochs": 1, "dropout": 0.5})).fit(Split(sentences(5)))
    assert torch.equal(torch.rand(3), expected)
