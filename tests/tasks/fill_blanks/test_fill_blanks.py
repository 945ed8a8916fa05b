"""Blanks are filled from the text on both sides, never from their contents; all probabilities sum to 1."""

from pathlib import Path

import numpy as np
import pytest
import torch

from glassgate.tasks.data.texts import Text
from glassgate.tasks.errors import OptionError
from glassgate.tasks.fill_blanks import FillBlanks, FillBlanksOptions
from glassgate.tasks.fill_blanks.network import BlankNetwork
from glassgate.tasks.task import Split

QUICK = {
    "hidden_size": 16,
    "embedding_size": 8,
    "dropout": 0.0,
    "learning_rate": 0.03,
    "batch_size": 8,
    "longest": 24,
    "epochs": 4,
}
PROSE = Text("salt and pepper, bread and butter, " * 25)


def trained(texts: list[Text] | None = None, **options: object) -> FillBlanks:
    """Return a small model trained on some prose."""
    task = FillBlanks(FillBlanksOptions.from_mapping(QUICK | options))
    task.fit(Split(texts or [PROSE]))
    return task


@pytest.fixture(scope="module")
def filler() -> FillBlanks:
    return trained(epochs=40, learning_rate=0.05)


@pytest.mark.parametrize("options", [{}, {"num_layers": 3}, {"cell": "gru", "num_layers": 2}, {"bidirectional": False}])
def test_the_model_does_not_read_the_blank(options: dict[str, object]) -> None:
    """The contents of a blank do not change its scores. Every token next to it does."""
    network = BlankNetwork(FillBlanksOptions.from_mapping(QUICK | options), 12).double().eval()
    numbers, lengths = torch.randint(2, 12, (1, 9)), torch.tensor([9])

    def said(numbers: torch.Tensor, blank: int, length: int) -> torch.Tensor:
        forward, backward, _ = network.read(numbers, lengths)
        before = torch.nn.functional.pad(forward, (0, 0, 1, 0))[:, blank]
        after = None if backward is None else torch.nn.functional.pad(backward, (0, 0, 0, 9))[:, blank + length]
        return network.token_scores(before, after, torch.tensor([length]))

    for blank in range(9):
        one = network({"units": numbers, "lengths": lengths}).token_scores[:, blank]
        torch.testing.assert_close(one, said(numbers, blank, 1))
        for place in range(9):
            other = numbers.clone()
            other[0, place] = 2 + (numbers[0, place] - 1) % 10
            changed = not torch.equal(network({"units": other, "lengths": lengths}).token_scores[:, blank], one)
            assert changed == (place < blank or (place > blank and network.encoder.bidirectional))


def test_the_model_does_not_read_the_blank_in_training() -> None:
    """The scores of a random blank do not depend on the tokens that it covers."""
    network = BlankNetwork(FillBlanksOptions.from_mapping(QUICK | {"num_layers": 2}), 12).train()
    numbers = torch.randint(2, 12, (3, 9))
    lengths = torch.tensor([9, 9, 5])
    numbers[2, 5:] = 0
    embedded: list[torch.Tensor] = []
    network.embedding.register_forward_hook(lambda _m, _i, output: embedded.append(output) or output.retain_grad())
    output = network({"units": numbers, "lengths": lengths})
    inside = torch.arange(9) < lengths[:, None]
    assert (output.blank_lengths >= 1).all()
    assert (torch.arange(9) + output.blank_lengths <= lengths[:, None])[inside].all()
    assert len(output.blank_lengths[inside].unique()) > 1
    for row, place in inside.nonzero().tolist():
        (gradient,) = torch.autograd.grad(output.token_scores[row, place].sum(), embedded[0], retain_graph=True)
        touched = gradient.abs().sum(-1).nonzero().tolist()
        covered = range(place, place + int(output.blank_lengths[row, place]))
        assert all(r == row and p not in covered for r, p in touched)
        assert len(touched) == lengths[row] - len(covered)


def test_the_right_side_decides() -> None:
    texts = [Text(f"?xy{last}".replace("?", last) + "\n") for last in "ab"] * 40
    for both in (True, False):
        task = trained(texts, sequence="line", bidirectional=both, epochs=20, longest_blank=1)
        chances = {each.text: each.probability for each in task.fill("___xyb")[0]}
        assert (chances["b"] > 0.9) == both


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_probabilities_sum_to_one(longest: int) -> None:
    task = trained([Text("abcab")] * 8, longest_blank=3, epochs=30)
    candidates = task.fill("ab___ab", longest=longest, n_best=10**4)[0]
    assert (
        len(candidates) == len({each.text for each in candidates}) == sum(3**length for length in range(1, longest + 1))
    )
    # The rest is the probability of the unknown token, which training has made very small.
    assert 0.9 < sum(each.probability for each in candidates) <= 1.0001
    assert [each.probability for each in candidates] == sorted((each.probability for each in candidates), reverse=True)


def test_fills_blanks_of_unknown_length(filler: FillBlanks) -> None:
    assert filler.fill("and pepper, br__d and butter, salt")[0][0].text == "ea"
    assert filler.fill("and pepper, bre__ and butter, salt")[0][0].text == "ad"
    assert filler.fill("and pepper, bread a___ butter, salt")[0][0].text == "nd"
    of_one = filler.fill("salt and pepper, bread and b___tter, ", length=1)[0]
    assert of_one[0].text == "u"
    assert all(len(each.text) == 1 for each in of_one)
    assert len(filler.fill("br___d", n_best=3)[0]) == 3


def test_several_blanks_and_sides_without_text(filler: FillBlanks) -> None:
    first, second = filler.fill("pepper, br__d and butter, s__t and pepper")
    assert first[0].text == "ea"
    assert second[0].text == "al"
    assert filler.fill("___")[0]
    assert filler.text("pepper, br__d and butter, s__t and pepper", [first, second]) == (
        "pepper, bread and butter, salt and pepper"
    )


def test_predicts_lines_and_texts(filler: FillBlanks) -> None:
    line = "and pepper, br__d and butter, salt"
    of_line, of_text = filler.predict([line, Text("bread and butter, salt")])
    assert of_line == filler.fill(line)
    assert len(of_text) == len("bread and butter, salt")
    assert of_text[12][0].text == "t"
    assert filler.text(Text("ab"), of_text[:2]).startswith("'a'\t")


def test_scores_equal_a_manual_computation(filler: FillBlanks) -> None:
    text = "salt and pepper, bread"
    candidates = filler.predict([Text(text)])[0]
    chances = [
        {each.text: each.probability for each in place}.get(token, 0)
        for place, token in zip(candidates, text, strict=True)
    ]
    assert filler.evaluate([Text(text)])["nats"] == pytest.approx(-np.log(chances).mean(), rel=1e-3)
    hits = [place[0].text == token for place, token in zip(candidates, text, strict=True)]
    assert filler.evaluate([Text(text)])["accuracy"] == pytest.approx(np.mean(hits))


def test_saved_and_loaded(tmp_path: Path, filler: FillBlanks) -> None:
    filler.save(tmp_path / "run")
    assert FillBlanks.load(tmp_path / "run").fill("bread a__") == filler.fill("bread a__")


def test_invalid_arguments(filler: FillBlanks) -> None:
    with pytest.raises(OptionError, match=r"text: expected a blank, as in 'I am ___ hungry', got 'none'"):
        filler.fill("none")
    for name in ("length", "longest"):
        with pytest.raises(
            OptionError, match=f"{name}: expected 1 to 4, .* got 9; for longer ones train with --longest-blank"
        ):
            filler.fill("a __ b", **{name: 9})  # type: ignore[arg-type]
    assert filler.unknown("我 ___ a饿") == ["我", "饿"]


def test_reads_blanks_in_rows_of_json(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "salt ___ pepper"}\n{"text": "bread ___"}\n')
    examples = FillBlanks(FillBlanksOptions()).read(tmp_path / "a.jsonl", labelled=False)
    assert examples == ["salt ___ pepper", "bread ___"]
