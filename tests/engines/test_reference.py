"""The reference engine: first and second derivatives, the order of steps, heads, autocast and empty batches."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

import glassgate as gg
from glassgate.cell import Cell, Parameter
from glassgate.engines.contract import Direction, Steps
from glassgate.engines.reference import run
from glassgate.engines.reference_step import recurrent_product
from tests.compare import noise


class Everything(Cell):
    """A cell that reads halves and sums of gates, a second product, a mean over units and two kinds of parameters."""

    gates = ("a", "b", "n")
    state = ("h", "c")
    parameters = {"peep": Parameter(0.5), "gain": Parameter(1.0, per_gate=True)}

    def step(self, a, s, p):
        gate = torch.sigmoid(p.gain.a * a.ih.a + torch.tanh(a.hh.a) + p.peep * s.c)
        c = gate * s.c + (1 - gate) * torch.tanh(p.gain.n * a.hh(gate * s.h).n + a.ih.n)
        return torch.sigmoid(a.b) * torch.tanh(c - c.mean(-1, keepdim=True)), c


CALLS = {
    "LSTM": (lambda: gg.LSTM(2, 3, dtype=torch.float64), {}),
    "LSTMP": (lambda: gg.LSTM(2, 3, proj_size=2, bidirectional=True, dtype=torch.float64), {}),
    "GRU": (lambda: gg.GRU(2, 3, bidirectional=True, dtype=torch.float64), {"lengths": [1, 3]}),
    "GRUv3": (lambda: gg.Recurrent(gg.cells.GRUv3(), 2, 3, dtype=torch.float64), {}),
    "RNN": (lambda: gg.RNN(2, 3, dtype=torch.float64), {"resets": torch.tensor([[0, 1], [0, 1], [1, 0]])}),
    "custom cell": (lambda: gg.Recurrent(Everything(), 2, 3, dtype=torch.float64), {"lengths": [3, 0]}),
}


@pytest.mark.parametrize("name", CALLS)
def test_first_and_second_derivatives(name):
    make, options = CALLS[name]
    layer = make()
    names = [n for n, _ in layer.named_parameters()]
    widths = [layer.proj_size or 3, 3][: len(layer.cell.state)]

    def call(x, *rest):
        states, weights = rest[: len(widths)], rest[len(widths) :]
        hx = states[0] if len(states) == 1 else states
        with gg.engine("reference"):
            output, final = functional_call(layer, dict(zip(names, weights, strict=True)), (x, hx), options)
        return (output, *final) if isinstance(final, tuple) else (output, final)

    leaves = [noise(1, 3, 2, 2), *(noise(2 + k, layer.num_directions, 2, w) for k, w in enumerate(widths))]
    leaves = [v.requires_grad_() for v in leaves] + list(layer.parameters())
    assert gradcheck(call, leaves)
    assert gradgradcheck(call, leaves, fast_mode=True)


class StepOrder(Cell):
    """A cell whose state depends on the order of the steps. A second state counts the steps."""

    gates = ("x",)
    state = ("h", "steps")

    def step(self, a, s):
        return s.h * 2 + a.ih.x, s.steps + 1


@pytest.mark.parametrize(
    ("reverse", "h", "counts", "final"),
    [
        (False, [11, 24, 24, 68, 51, 106, 0], [1, 1, 2, 2, 3, 4, 0], [106, 68, 9]),
        (True, [129, 78, 64, 34, 31, 14, 0], [4, 2, 3, 1, 2, 1, 0], [129, 78, 9]),
    ],
)
def test_each_step_runs_once_and_in_order(reverse, h, counts, final):
    weights = {"weight_ih": torch.ones(1, 1), "weight_hh": torch.zeros(1, 1)}
    data = torch.tensor([1.0, 10.0, 2.0, 20.0, 3.0, 4.0, 99.0])[:, None]
    initial = (torch.tensor([[5.0], [7.0], [9.0]]), torch.zeros(3, 1))
    steps = Steps(data, torch.tensor([2, 2, 1, 1, 0]), None)
    (result,) = run(steps, [Direction(StepOrder(), weights, initial, reverse)], all_states=True)
    assert [v.flatten().tolist() for v in result.states] == [h, counts]
    assert [v.flatten().tolist() for v in result.final] == [final, [4, 2, 0]]


def test_heads_are_diagonal_blocks_of_the_recurrent_weights():
    u, weight, bias = noise(1, 5, 6), noise(2, 12, 2), noise(3, 12)
    gates = [torch.block_diag(*rows.split(2)) for rows in weight.split(6)]
    wanted = nn.functional.linear(u, torch.cat(gates), bias)
    torch.testing.assert_close(recurrent_product(u, weight, bias, heads=3), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [gg.LSTM, gg.GRU, lambda *sizes: gg.Recurrent(Everything(), *sizes)])
def test_autocast_computes_in_its_dtype(make):
    """The results are bitwise equal to those of a layer in bfloat16, as with torch's layers."""
    layer, x = make(3, 4), torch.randn(5, 2, 3)
    half = deepcopy(layer).bfloat16()
    with gg.engine("reference"):
        expected, _ = half(x.bfloat16())
        expected.sum().backward()
        with torch.autocast("cpu", torch.bfloat16):
            output, final = layer(x)
            output.sum().backward()
    assert {v.dtype for v in (output, *(final if isinstance(final, tuple) else (final,)))} == {torch.bfloat16}
    assert torch.equal(output, expected)
    for weight, other in zip(layer.parameters(), half.parameters(), strict=True):
        assert weight.grad.dtype == torch.float32
        torch.testing.assert_close(weight.grad, other.grad.float(), rtol=0, atol=0)


@pytest.mark.parametrize("lengths", [None, []])
def test_an_empty_batch_has_gradients(lengths):
    layer, x = gg.GRU(3, 4), torch.zeros(5, 0, 3, requires_grad=True)
    with gg.engine("reference"):
        output, h_n = layer(x, lengths=lengths)
    assert output.shape == (5, 0, 4)
    assert h_n.shape == (1, 0, 4)
    d = torch.autograd.grad(output.sum() + h_n.sum(), [x, *layer.parameters()])
    assert not any(v.count_nonzero() for v in d)
