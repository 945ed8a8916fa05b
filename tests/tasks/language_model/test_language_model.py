"""A language model learns, carries its state, computes surprise, generates with each option, and reads one way only."""

import math
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from glassgate.tasks.data.texts import Text
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.language_model import LanguageModel, LanguageModelOptions
from glassgate.tasks.language_model.music import Roll
from glassgate.tasks.language_model.network import LanguageNetwork
from glassgate.tasks.language_model.task import sample_token
from glassgate.tasks.progress import Interrupted, Progress
from glassgate.tasks.runs import MODEL
from glassgate.tasks.task import Split

QUICK = {
    "hidden_size": 16,
    "embedding_size": 8,
    "dropout": 0.0,
    "learning_rate": 0.03,
    "batch_size": 4,
    "chunk": 10,
    "epochs": 6,
}
COUNTING = Text("zero one two three four five six seven eight nine\n" * 12)


def trained(texts: Split[Text | Roll] | None = None, **options: object) -> LanguageModel:
    """Return a small model trained on counting."""
    model = LanguageModel(LanguageModelOptions.from_mapping(QUICK | options))
    model.fit(texts or Split([COUNTING]))
    return model


@pytest.fixture(scope="module")
def counter() -> LanguageModel:
    return trained(epochs=15)


@pytest.mark.parametrize(
    "options",
    [
        {"cell": "gru", "num_layers": 2, "dropout": 0.1},
        {"cell": "rnn", "tied": True},
        {"tied": True, "embedding_size": 16},
        {"tokens": "byte"},
        {"tokens": "word", "epochs": 20},
        {"sequence": "line"},
    ],
)
def test_it_learns(options: dict[str, object]) -> None:
    token_kind, sequence = str(options.get("tokens", "character")), str(options.get("sequence", "file"))
    texts = [COUNTING] if sequence == "file" else [Text(line + "\n") for line in str(COUNTING.tokens).splitlines()]
    if token_kind == "word":
        texts = [Text(str(COUNTING.tokens).split())]
    model = LanguageModel(LanguageModelOptions.from_mapping(QUICK | options))
    result = model.fit(Split(texts, texts))
    history = result["history"]
    assert history[-1]["nats"] < 0.9 * history[0]["nats"]
    assert result["best_epoch"] == 1 + min(range(len(history)), key=lambda epoch: history[epoch]["nats"])


def test_scores_equal_a_manual_computation(counter: LanguageModel) -> None:
    nats = counter.predict([COUNTING])[0]
    assert len(nats) == len(COUNTING.tokens)
    mean = sum(nats) / len(nats)
    scores = counter.evaluate([COUNTING])
    assert scores["nats"] == pytest.approx(mean, rel=1e-6)
    assert scores["bits"] == pytest.approx(mean / math.log(2), rel=1e-6)
    assert scores["perplexity"] == pytest.approx(math.exp(mean), rel=1e-6)
    assert counter.text(Text("a\n"), [1.0, 0.25]) == "a\t1.000\n\\n\t0.250\n"


def test_the_loss_is_that_of_the_whole_text(counter: LanguageModel) -> None:
    """With carried states, chunks give the same surprise as one call with the complete text."""
    numbers = torch.from_numpy(counter.vocabularies["units"].encode(COUNTING.tokens))[None]
    network = counter.network
    assert isinstance(network, LanguageNetwork)
    with torch.no_grad():
        logits, _ = network.advance(torch.cat([torch.zeros_like(numbers[:, :1]), numbers[:, :-1]], 1), None, None)
    nats = torch.nn.functional.cross_entropy(logits[0], numbers[0] - 1, reduction="none")
    torch.testing.assert_close(torch.tensor(counter.predict([COUNTING])[0]), nats, rtol=1e-4, atol=1e-5)


def test_texts_are_separate(counter: LanguageModel) -> None:
    apart = [counter.predict([Text(each)])[0] for each in ("one two", "three four five")]
    together = counter.predict([Text("one two"), Text("three four five")])
    for one, other in zip(apart, together, strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-5)


def test_new_rows_start_from_zero_states(counter: LanguageModel) -> None:
    network = counter.network.eval()
    inputs, lengths = torch.randint(2, 12, (2, 2, 6)), torch.tensor([6, 6])

    def said(part: int, continues: list[bool]) -> torch.Tensor:
        return network({"inputs": inputs[part], "lengths": lengths, "continues": torch.tensor(continues)})

    with torch.no_grad():
        fresh = said(1, [False, False])
        said(0, [False, False])
        mixed = said(1, [True, False])
    assert not torch.allclose(mixed[0], fresh[0])
    torch.testing.assert_close(mixed[1], fresh[1])


class CtrlC(Progress):
    """Sends SIGINT after a number of steps, like Ctrl-C."""

    def __init__(self, after: int):
        self.left = after

    def step(self, units: int, loss: float) -> None:
        self.left -= 1
        if not self.left:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_resumes_within_a_stream(tmp_path: Path, cell: str) -> None:
    """The carried state is part of the checkpoint: the resumed run ends with the same weights, bit for bit."""
    data = tmp_path / "text.txt"
    data.write_text(str(COUNTING.tokens))
    told = {"epochs": 2, "cell": cell, "dropout": 0.2, "data": str(data), "held_out": 0.1}
    options = LanguageModelOptions.from_mapping(QUICK | told)
    LanguageModel(options).fit(run=tmp_path / "whole")
    with pytest.raises(Interrupted):
        LanguageModel(options).fit(run=tmp_path / "broken", progress=CtrlC(5))
    LanguageModel.resume(tmp_path / "broken")
    one, other = (load_file(tmp_path / name / MODEL) for name in ("whole", "broken"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not any("state" in name for name in one)


def test_saved_and_loaded(tmp_path: Path, counter: LanguageModel) -> None:
    counter.save(tmp_path / "run")
    loaded = LanguageModel.load(tmp_path / "run")
    assert loaded.predict([COUNTING]) == counter.predict([COUNTING])


def test_tied_weights_are_one() -> None:
    model = trained(tied=True, embedding_size=16, epochs=1)
    names = [name for name, _ in model.network.named_parameters()]
    assert not any("projection" in name or name == "head.weight" for name in names)
    assert sum(name.endswith("embedding.weight") for name in names) == 1
    tied = trained(tied=True, embedding_size=8, epochs=1)
    assert tied.network.get_parameter("head.projection.weight").shape == (8, 16)


def test_generates_the_likeliest(counter: LanguageModel) -> None:
    assert "".join(counter.generate("zero one two th", length=10, temperature=0)) == "ree four f"
    greedy = list(counter.generate("one", length=30, temperature=0))
    assert list(counter.generate("one", length=30, top_k=1)) == greedy
    assert list(counter.generate("one", length=30, top_p=1e-6)) == greedy
    assert list(counter.generate("one", length=30, temperature=0.01, seed=3)) == greedy


def test_a_seed_repeats_the_text(counter: LanguageModel) -> None:
    made = ["".join(counter.generate("", length=60, temperature=3, seed=seed)) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    assert len(made[0]) == 60


def test_text_is_returned_while_it_is_generated(counter: LanguageModel) -> None:
    stream = counter.generate("one", length=10**9, seed=1)
    assert len([next(stream) for _ in range(5)]) == 5


def test_samples_follow_the_probabilities() -> None:
    chances = torch.tensor([0.5, 0.3, 0.15, 0.05])
    random = torch.Generator().manual_seed(0)

    def shares(**told: float) -> list[float]:
        options = {"temperature": 1.0, "top_k": 0, "top_p": 1.0} | told
        drawn = [sample_token(chances.log(), random=random, **options) for _ in range(4000)]  # type: ignore[arg-type]
        return [drawn.count(number) / len(drawn) for number in range(4)]

    assert shares() == pytest.approx(chances.tolist(), abs=0.03)
    assert shares(top_k=2) == pytest.approx([0.625, 0.375, 0, 0], abs=0.03)
    assert shares(top_p=0.75) == pytest.approx([0.625, 0.375, 0, 0], abs=0.03)
    sharp = (chances**2 / (chances**2).sum()).tolist()
    assert shares(temperature=0.5) == pytest.approx(sharp, abs=0.03)


def test_bytes_are_decoded_to_characters() -> None:
    model = trained(Split([Text("我饿了\n".encode().decode("latin-1") * 60)]), tokens="byte", epochs=12)
    assert "".join(model.generate("我", length=7, temperature=0)) == "饿了\n"


def test_lines_start_from_the_initial_state() -> None:
    model = trained(Split([Text("ab\n"), Text("ab\n")]), sequence="line", epochs=40)
    assert "".join(model.generate(length=6, temperature=0)) == "ab\nab\n"


def test_words_are_separated() -> None:
    model = trained(Split([Text(["well", ",", "well", ".", "\n"] * 60)]), tokens="word", epochs=15)
    assert "".join(model.generate("well", length=5, temperature=0)) == ", well.\nwell"


def test_music() -> None:
    steps = np.zeros((40, 88), np.uint8)
    steps[::2, 39], steps[1::2, [43, 46]] = 1, 1
    model = trained(Split([Roll(steps)] * 4, test=[Roll(steps)]), tokens="notes", epochs=40)
    nats = model.predict([Roll(steps)])[0]
    assert len(nats) == 40
    assert np.mean(nats) < 3
    assert model.evaluate([Roll(steps)])["nats"] == pytest.approx(np.mean(nats[1:]), rel=1e-5)
    assert "accuracy" not in model.evaluate([Roll(steps)])
    assert {"60\n", "64 67\n"} & set(model.generate(length=6, temperature=0))
    assert model.text(Roll(steps[:2]), [0.5, 1.0]) == "60\t0.500\n64 67\t1.000\n"
    with pytest.raises(OptionError, match="prompt, top_k, top_p: music takes none of them; leave them out"):
        model.generate("60")


def test_chunks_of_music_continue_from_the_carried_state() -> None:
    """Without updates, the loss of pieces of different lengths is the same with chunks as with whole sequences."""
    random = np.random.default_rng(0)
    pieces = [Roll(random.integers(0, 2, (length, 88), np.uint8)) for length in (33, 30, 21, 4, 2)]
    losses = []
    for chunk in (7, 100):
        options = {"tokens": "notes", "epochs": 1, "batch_size": 3, "learning_rate": 0.0, "chunk": chunk}
        model = LanguageModel(LanguageModelOptions.from_mapping(QUICK | options))
        losses.append(model.fit(Split(pieces))["history"][0]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_music_scores_equal_a_manual_computation() -> None:
    """The loss of a step is the sum over 88 notes."""
    model = trained(Split([Roll(np.zeros((5, 88), np.uint8))]), tokens="notes", epochs=1)
    for parameter in model.network.parameters():
        torch.nn.init.zeros_(parameter)
    silence = model.evaluate([Roll(np.zeros((7, 88), np.uint8))])
    assert silence == {"nats": pytest.approx(88 * math.log(2)), "note_f1": 1.0}
    with torch.no_grad():  # every note is predicted
        [*model.network.parameters()][-1].fill_(1.0)
    notes = np.random.default_rng(0).integers(0, 2, (7, 88), np.uint8)
    correct = int(notes[1:].sum())
    assert model.evaluate([Roll(notes)])["note_f1"] == pytest.approx(2 * correct / (2 * correct + 6 * 88 - correct))


def test_one_direction_only() -> None:
    with pytest.raises(
        OptionError,
        match=r"bidirectional: expected one direction .* has seen the token that is to be predicted; .* fill-blanks",
    ):
        LanguageModelOptions(bidirectional=True)


def test_invalid_arguments(counter: LanguageModel) -> None:
    for name, value, wanted in [
        ("temperature", -1.0, "0 or more"),
        ("top_k", -1, "0 or more"),
        ("top_p", 0.0, "more than 0 and at most 1"),
        ("length", -1, "0 or more"),
    ]:
        with pytest.raises(OptionError, match=f"{name}: expected {wanted}, got {value}"):
            counter.generate(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="prompt: expected tokens that the training data had, got '我'"):
        counter.generate("我")
    with pytest.raises(OptionError, match="tied: notes have no embedding"):
        LanguageModelOptions(tokens="notes", tied=True)
    with pytest.raises(OptionError, match="tokens: notes has no built-in training data; give piano rolls with --data"):
        LanguageModel(LanguageModelOptions(tokens="notes")).fit()


def test_music_in_parts_without_training(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"test": [[[60], [61]]]}')
    options = LanguageModelOptions(tokens="notes", data=str(tmp_path / "a.json"))
    with pytest.raises(DataError, match=r"a\.json: expected pieces to train on, got none"):
        LanguageModel(options).fit()
