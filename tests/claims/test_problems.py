import pytest
import torch

from glassgate.claims.problems import PROBLEMS


def _made(name, lag=40, N=64, seed=3):
    return PROBLEMS[name].make(lag, N, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_seed_repeats_the_sequences_and_widths_are_as_documented(name):
    one, other, third = _made(name), _made(name), _made(name, seed=4)
    assert torch.equal(one.inputs, other.inputs)
    assert torch.equal(one.targets, other.targets)
    assert one.inputs.shape != third.inputs.shape or not torch.equal(one.inputs, third.inputs)
    assert one.inputs.shape[2] == PROBLEMS[name].features
    assert int(one.lengths.max()) == one.inputs.shape[0]
    if PROBLEMS[name].lags:
        assert int(one.lengths.min()) >= 40


@pytest.mark.parametrize(
    ("name", "answer"), [("adding", lambda a, b: 0.5 + (a + b) / 4), ("multiplication", lambda a, b: a * b)]
)
def test_the_two_marked_numbers_make_the_target(name, answer):
    batch = _made(name)
    for n, length in enumerate(batch.lengths.tolist()):
        row = batch.inputs[:length, n].tolist()
        a, b = (value for value, marker in row if marker == 1)
        assert batch.targets[n].item() == pytest.approx(answer(a, b), abs=1e-6)
        assert row[-1][1] == -1
        places = [place for place, (_, marker) in enumerate(row) if marker == 1]
        assert places[0] < 20
        assert places[1] < 20


@pytest.mark.parametrize(("name", "symbols"), [("order", 2), ("order-3", 3)])
def test_the_order_of_x_and_y_is_the_class(name, symbols):
    batch = _made(name)
    for n, length in enumerate(batch.lengths.tolist()):
        row = batch.inputs[:length, n].argmax(-1).tolist()
        seen = "".join("XY"[s - 6] for s in row if s >= 6)
        assert len(seen) == symbols
        assert int(seen.replace("X", "0").replace("Y", "1"), 2) == batch.targets[n]


def test_the_class_of_a_noisy_sequence_is_the_sign_of_its_start():
    batch = _made("noisy", N=400)
    means = batch.inputs[:3, :, 0].mean(0)
    assert ((means < 0).long() == batch.targets).float().mean() > 0.98
    assert batch.inputs[3:].var().item() == pytest.approx(0.2, rel=0.05)


def test_the_targets_of_copy_are_the_first_ten_symbols():
    batch = _made("copy")
    symbols = batch.inputs.argmax(-1)
    assert torch.equal(batch.targets[-10:], symbols[:10])
    assert (batch.targets[:-10] == -100).all()


def test_reber_strings_follow_the_grammar_of_the_paper():
    """Legal next symbols by another writing of the automaton: a regular expression of the inner language."""
    import re

    inner = re.compile(r"B(T S* X ( X V? | S ) | P).*E".replace(" ", ""))
    batch = _made("reber", N=200)
    for n, length in enumerate(batch.lengths.tolist()):
        text = "".join("BTPSXVE"[k] for k in batch.inputs[:length, n].argmax(-1)) + "E"
        assert text[1] == text[-2]
        assert inner.fullmatch(text[2:-2])
        for step in range(length):
            assert batch.legal[step, n, batch.targets[step, n]]
            assert 1 <= int(batch.legal[step, n].sum()) <= 2


def test_answers_are_graded_as_in_the_paper():
    adding, order = PROBLEMS["adding"], PROBLEMS["order"]
    batch = _made("adding", N=2)
    near = batch.targets[:, None] + torch.tensor([[0.039], [0.041]])
    assert adding.right(near, batch).tolist() == [True, False]
    batch = _made("order", N=2)
    sure = torch.full((2, 4), -5.0).scatter_(1, batch.targets[:, None], torch.tensor([[5.0], [-5.0]]))
    assert order.right(sure, batch).tolist() == [True, False]
