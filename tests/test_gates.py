"""`gg.gates.LSTMCell` equals the fused cell and torch's cell, and each gate equals its formula."""

import pytest
import torch
from torch import nn

import glassgate as gg
from glassgate import gates
from tests.compare import check, measure, noise


def states(*rows, H=4):
    return [v.requires_grad_() for v in (noise(1, *rows, 3), noise(2, *rows, H), noise(3, *rows, H))]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [gg.LSTMCell, nn.LSTMCell])
@pytest.mark.parametrize("rows", [(5,), ()])
def test_separate_gates_equal_the_fused_cell(kind, bias, rows):
    fused = kind(3, 4, bias=bias).double()
    apart = gates.LSTMCell.from_fused(fused)
    assert apart.input_gate.linear.weight.dtype == torch.float64
    x, h, c = states(*rows)
    leaves = {"x": x, "h": h, "c": c}
    got = measure(dict(zip("hc", apart(x, h, c), strict=True)), leaves)
    check(got, measure(dict(zip("hc", fused(x, (h, c)), strict=True)), leaves))


@pytest.mark.parametrize("bias", [True, False])
def test_conversion_to_the_fused_cell_and_back_keeps_the_weights(bias):
    apart = gates.LSTMCell(3, 4, bias).double()
    fused = apart.to_fused()
    assert isinstance(fused, gg.LSTMCell)
    assert fused.bias is bias
    x, h, c = states(5)
    check(
        {k: v.detach() for k, v in zip("hc", fused(x, (h, c)), strict=True)},
        {k: v.detach() for k, v in zip("hc", apart(x, h, c), strict=True)},
    )
    again = gates.LSTMCell.from_fused(fused)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), apart.parameters(), strict=True))


def test_conversions_share_no_memory():
    apart = gates.LSTMCell(3, 4)
    fused = apart.to_fused()
    before = fused.weight_ih.clone()
    with torch.no_grad():
        apart.input_gate.linear.weight.add_(1)
    assert torch.equal(fused.weight_ih, before)
    assert all(p.requires_grad for p in (*fused.parameters(), *gates.LSTMCell.from_fused(fused).parameters()))


@pytest.mark.parametrize("kind", [gates.InputGate, gates.ForgetGate, gates.OutputGate])
def test_a_gate_is_a_linear_layer_with_a_sigmoid(kind):
    gate, (x, h, _) = kind(3, 4).double(), states(5)
    assert torch.equal(gate(x, h), torch.sigmoid(nn.functional.linear(torch.cat([x, h], 1), *gate.linear.parameters())))


def test_the_gates_keep_and_write_the_cell_state():
    update, (x, h, c) = gates.CellStateUpdater(3, 4).double(), states(5)
    zero, one = torch.zeros_like(c), torch.ones_like(c)
    assert torch.equal(update(x, h, c, zero, one), c)
    assert torch.equal(update(x, h, c, one, zero), update.candidate(x, h))
    assert update.candidate(x, h).abs().max() < 1


def test_each_gate_has_its_effect():
    """The bias of one gate is so negative that the gate is closed."""
    cell, (x, h, c) = gates.LSTMCell(3, 4).double(), states(5)
    with torch.no_grad():
        cell.output_gate.linear.bias.fill_(-1e3)
        assert not cell(x, h, c)[0].any()
        cell.output_gate.linear.bias.fill_(1e3)
        cell.input_gate.linear.bias.fill_(-1e3)
        cell.forget_gate.linear.bias.fill_(1e3)
        new_h, new_c = cell(x, h, c)
        assert torch.equal(new_c, c)
        assert torch.equal(new_h, torch.tanh(c))
        cell.forget_gate.linear.bias.fill_(-1e3)
        assert not cell(x, h, c)[1].any()


def test_from_fused_rejects_other_modules():
    with pytest.raises(TypeError, match=r"from_fused: expected an LSTMCell of glassgate or torch\.nn, got GRUCell"):
        gates.LSTMCell.from_fused(gg.GRUCell(3, 4))
