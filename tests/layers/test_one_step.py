"""Training calls on one step of one sequence, and cells, which run single steps."""

import pytest
import torch
from torch import nn

import glassgate as gg

H = 32


def _pair(kind, dtype=torch.float32, **options):
    torch.manual_seed(0)
    theirs = getattr(nn, kind)(6, H, dtype=dtype, **options)
    ours = getattr(gg, kind)(6, H, dtype=dtype, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def _call(layer, x, hx):
    output, final = layer(x, hx)
    return output, *(final if isinstance(final, tuple) else (final,))


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}]
)
def test_a_step_equals_that_of_torch(nonlinearity, options):
    theirs, ours = _pair("RNN", nonlinearity=nonlinearity, **options)
    x, hx = torch.randn(1, 1, 6), torch.randn(len(theirs.all_weights), 1, H)
    for given in (hx, None):
        assert gg.explain(ours, x, given).engine == "cpu"
        expected = _call(theirs, x, given)
        for _ in range(3):
            for one, other in zip(expected, results := _call(ours, x, given), strict=True):
                torch.testing.assert_close(one, other)
    for values in (expected, results):
        sum(v.square().sum() for v in values).backward()
    for one, other in zip(theirs.parameters(), ours.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_a_change_of_the_equations_is_detected():
    layer, x = gg.RNN(6, H), torch.randn(1, 1, 6)
    for _ in range(3):
        before = layer(x)[0]
    layer.glassgate.training_cell.nonlinearity = "relu"
    after = layer(x)[0]
    assert after.min() >= 0
    assert before.min() < 0


def test_second_derivatives_are_finite():
    _, ours = _pair("RNN")
    x = torch.randn(1, 1, 6, requires_grad=True)
    (d,) = torch.autograd.grad(ours(x)[0].square().sum(), x, create_graph=True)
    d.square().sum().backward()
    assert torch.isfinite(ours.weight_ih_l0.grad).all()


def test_lengths_resets_states_and_recordings_of_one_step():
    x, hx = torch.randn(1, 1, 6), torch.ones(1, 1, H)
    layer, resets = gg.RNN(6, H), torch.ones(1, 1, dtype=torch.bool)
    assert torch.allclose(layer(x, hx, lengths=[1])[0], layer(x, hx)[0], atol=1e-6)
    assert torch.equal(layer(x, hx, lengths=[0])[0], torch.zeros(1, 1, H))
    assert torch.allclose(layer(x, hx, resets=resets)[0], layer(x, hx)[0], atol=1e-6)
    assert "layer0.forward.h" in layer(x, return_states=True)[2]
    with gg.record(layer) as tape:
        layer(x)
    assert f"layer0.forward.{layer.cell.gates[0]}" in tape


def test_errors_are_those_of_the_general_path():
    layer = gg.RNN(6, H)
    with pytest.raises(gg.ShapeError, match="RNN: input must have H_in = input_size = 6 features, got 7"):
        layer(torch.randn(1, 1, 7))
    with pytest.raises(gg.ShapeError, match=r"RNN: h_0 must be \(num_layers \* D, N, H_out\) = \(1, 1, 32\)"):
        layer(torch.randn(1, 1, 6), torch.zeros(1, 3, H))
    layer.weight_hh_l0 = nn.Parameter(torch.zeros(H, 4))
    with pytest.raises(gg.ShapeError, match="weight_hh_l0"):
        layer(torch.randn(1, 1, 6))


def test_dropout_between_layers_draws_the_same_as_torch():
    theirs, ours = _pair("RNN", num_layers=2, dropout=0.5)
    x = torch.randn(1, 1, 6)
    torch.manual_seed(1)
    expected = theirs(x)[0]
    torch.manual_seed(1)
    torch.testing.assert_close(ours(x)[0], expected)


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_a_step_of_a_cell_equals_torch_bit_for_bit(kind):
    theirs, ours = getattr(nn, kind)(6, 5), getattr(gg, kind)(6, 5)
    ours.load_state_dict(theirs.state_dict())
    x, state = torch.randn(4, 3, 6), [None, None]
    for t in range(4):
        state = [cell(x[t], before) for cell, before in zip((theirs, ours), state, strict=True)]
    flat = [torch.cat(v) if isinstance(v, tuple) else v for v in state]
    assert torch.equal(*flat)
    gradients = [torch.autograd.grad(v.sum(), cell.weight_hh) for v, cell in zip(flat, (theirs, ours), strict=True)]
    assert torch.equal(gradients[0][0], gradients[1][0])
    with gg.engine("reference"):
        assert torch.allclose(
            ours(x[0]) if kind != "LSTMCell" else ours(x[0])[0], theirs(x[0])[0 if kind == "LSTMCell" else ...]
        )
    for fault in (lambda: ours(torch.randn(3, 7)), lambda: ours(x[0].double()), lambda: ours(x[0], torch.zeros(2, 5))):
        with pytest.raises(gg.ShapeError, match=kind):
            fault()
    ours.bias_hh = nn.Parameter(torch.zeros(1))
    with pytest.raises(gg.ShapeError, match=r"bias_hh must be"):
        ours(x[0])
