import pytest
import torch

from glassgate.claims.problems import PROBLEMS


def _batch_of(name, lag=40, N=64, seed=3):
    return PROBLEMS[name].make(lag, N, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_seed_determines_the_sequences_and_shapes_are_as_documented(name):
    batch, repeated, other = _batch_of(name), _batch_of(name), _batch_of(name, seed=4)
    assert torch.equal(batch.inputs, repeated.inputs)
    assert torch.equal(batch.targets, repeated.targets)
    assert batch.inputs.shape != other.inputs.shape or not torch.equal(batch.inputs, other.inputs)
    assert batch.inputs.shape[2] == PROBLEMS[name].features
    assert int(batch.lengths.max()) == batch.inputs.shape[0]
    if PROBLEMS[name].has_free_lag:
        assert int(batch.lengths.min()) >= 40


@pytest.mark.parametrize(
    ("name", "answer"), [("adding", lambda a, b: 0.5 + (a + b) / 4), ("multiplication", lambda a, b: a * b)]
)
def test_the_target_is_computed_from_the_two_marked_numbers(name, answer):
    batch = _batch_of(name)
    for n, length in enumerate(batch.lengths.tolist()):
        row = batch.inputs[:length, n].tolist()
        a, b = (value for value, marker in row if marker == 1)
        assert batch.targets[n].item() == pytest.approx(answer(a, b), abs=1e-6)
        assert row[-1][1] == -1
        steps_of_markers = [step for step, (_, marker) in enumerate(row) if marker == 1]
        assert steps_of_markers[0] < 20
        assert steps_of_markers[1] < 20


@pytest.mark.parametrize(("name", "symbols"), [("order", 2), ("order-3", 3)])
def test_the_order_of_x_and_y_is_the_class(name, symbols):
    batch = _batch_of(name)
    for n, length in enumerate(batch.lengths.tolist()):
        row = batch.inputs[:length, n].argmax(-1).tolist()
        seen = "".join("XY"[s - 6] for s in row if s >= 6)
        assert len(seen) == symbols
        assert int(seen.replace("X", "0").replace("Y", "1"), 2) == batch.targets[n]


def test_the_class_of_a_noisy_sequence_is_the_sign_of_its_start():
    batch = _batch_of("noisy", N=400)
    means = batch.inputs[:3, :, 0].mean(0)
    assert ((means < 0).long() == batch.targets).float().mean() > 0.98
    assert batch.inputs[3:].var().item() == pytest.approx(0.2, rel=0.05)


def test_the_targets_of_copy_are_the_first_ten_symbols():
    batch = _batch_of("copy")
    symbols = batch.inputs.argmax(-1)
    assert torch.equal(batch.targets[-10:], symbols[:10])
    assert (batch.targets[:-10] == -100).all()


def test_reber_strings_follow_the_grammar_of_the_paper():
    """A regular expression defines the inner language of the grammar independently of the implementation."""
    import re

    inner = re.compile(r"B(T S* X ( X V? | S ) | P).*E".replace(" ", ""))
    batch = _batch_of("reber", N=200)
    for n, length in enumerate(batch.lengths.tolist()):
        text = "".join("BTPSXVE"[k] for k in batch.inputs[:length, n].argmax(-1)) + "E"
        assert text[1] == text[-2]
        assert inner.fullmatch(text[2:-2])
        for step in range(length):
            assert batch.legal[step, n, batch.targets[step, n]]
            assert 1 <= int(batch.legal[step, n].sum()) <= 2


def test_tolerances_of_answers_are_those_of_the_paper():
    adding, order = PROBLEMS["adding"], PROBLEMS["order"]
    batch = _batch_of("adding", N=2)
    answers = batch.targets[:, None] + torch.tensor([[0.039], [0.041]])
    assert adding.is_correct(answers, batch).tolist() == [True, False]
    batch = _batch_of("order", N=2)
    logits = torch.full((2, 4), -5.0).scatter_(1, batch.targets[:, None], torch.tensor([[5.0], [-5.0]]))
    assert order.is_correct(logits, batch).tolist() == [True, False]
