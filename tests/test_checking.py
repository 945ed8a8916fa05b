"""gg.check says in words what is wrong with a cell."""

import pytest
import torch

import glassgate as gg


class Cumulative(gg.Cell):
    gates = ("n",)
    state = ("h",)

    def step(self, a, s):
        return torch.tanh(a.n) + s.h.mean()


class TooFew(gg.Cell):
    gates = ("n",)
    state = ("h", "c")

    def step(self, a, s):
        return torch.tanh(a.n)


class Gateless(gg.Cell):
    def step(self, a, s):
        return s.h


class Misspelt(gg.Cell):
    gates = ("n",)

    def step(self, a, s):
        return torch.tanh(a.m)


class Exploding(gg.Cell):
    gates = ("n",)
    state = ("h",)

    def step(self, a, s):
        return torch.exp(a.n)


class _Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.tanh()

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class WrongDerivative(gg.Cell):
    gates = ("n",)
    state = ("h",)

    def step(self, a, s):
        return _Wrong.apply(a.n)


class Unused(gg.Cell):
    gates = ("n", "m")
    parameters = {"gain": gg.Parameter(1.0), "scale": gg.Parameter(1.0, per_gate=True)}

    def step(self, a, s, p):
        return torch.tanh(a.n) * p.scale.n


@pytest.mark.parametrize("cell", [gg.cells.LSTM(), gg.cells.GRU(), gg.cells.RNN("tanh"), Unused()], ids=repr)
def test_good_cells_pass(cell):
    report = gg.check(cell)
    assert report, str(report)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (Cumulative(), "changes with its neighbours"),
        (TooFew(), "step must return 2 states"),
        (Gateless(), "gates must name at least one"),
        (Misspelt(), "cell Misspelt: there is no 'm' here, only n"),
        (Exploding(), "nan or infinity"),
        (WrongDerivative(), "wrong derivative"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_faults_are_named(cell, words):
    report = gg.check(cell)
    assert not report
    assert words in str(report)
