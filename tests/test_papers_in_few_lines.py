"""Four cells in at most 15 lines of code, as a reader of docs/own-cells.md writes them, equal the built-in cells."""

import inspect

import pytest
import torch
from torch import einsum, exp, sigmoid, tanh
from torch.nn import functional as F

import glassgate as gg
from glassgate.cell_shapes import example_sizes
from tests.compare import noise

UNITS = ("units",)


class SCRN(gg.Cell):
    gates = {"c": gg.Gate(("context",), reads="x"), "h": UNITS}
    state = {"h": UNITS, "c": ("context",)}
    parameters = {"P": gg.Parameter(axes=("units", "context"))}
    context, alpha = 10, 0.95

    def step(self, a, s, p):
        c = (1 - self.alpha) * a.c + self.alpha * s.c
        return sigmoid(a.h + c @ p.P.mT), c


class LMU(gg.Cell):
    gates = {"h": UNITS, "u": ()}
    state = {"h": UNITS, "m": ("order",)}
    parameters = {
        "A": gg.Parameter(axes=("order", "order")),
        "B": gg.Parameter(axes=("order",)),
        "e": gg.Parameter(axes=("order",)),
        "W": gg.Parameter(axes=("units", "order")),
    }
    order = 32

    def step(self, a, s, p):
        u = a.u + (s.m * p.e).sum(-1)
        m = s.m @ p.A.mT + u[:, None] * p.B
        return tanh(a.h + m @ p.W.mT), m


class HyperLSTM(gg.Cell):
    gates = {"large": (4, "units"), "small": (4, "hyper")}
    state = {"h": UNITS, "c": UNITS, "m": ("hyper",), "n": ("hyper",)}
    parameters = {
        "R": gg.Parameter(axes=(4, "hyper", "hyper")),
        "Z": gg.Parameter(axes=(3, 4, "embedding", "hyper")),
        "D": gg.Parameter(axes=(3, 4, "units", "embedding")),
    }
    hyper, embedding = 32, 8

    def lstm(self, a, c):
        i, f, g, o = F.layer_norm(a, a.shape[-1:]).unbind(1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(F.layer_norm(c, c.shape[-1:])), c

    def step(self, a, s, p):
        d = einsum("nj,wgej,wgue->wngu", s.m, p.Z, p.D)
        h, c = self.lstm(d[0] * a.hh.large + d[1] * a.ih.large + d[2], s.c)
        m, n = self.lstm(a.small + einsum("nj,gkj->ngk", s.m, p.R), s.n)
        return h, c, m, n


class GatedDeltaNet(gg.Cell):
    gates = {"q": ("heads", "key"), "k": ("heads", "key"), "v": ("heads", "value"), "b": ("heads",), "f": ("heads",)}
    state = {"h": ("heads", "value"), "S": ("heads", "key", "value")}
    parameters = {"A": gg.Parameter(axes=("heads",))}
    recurrent = False
    heads, key = 1, 16

    def step(self, a, s, p):
        q, k = F.normalize(F.silu(a.q), dim=-1), F.normalize(F.silu(a.k), dim=-1)
        S = exp(-exp(p.A) * F.softplus(a.f))[..., None, None] * s.S
        new = sigmoid(a.b)[..., None] * (F.silu(a.v) - (k[..., None] * S).sum(-2))
        S = S + k[..., None] * new[..., None, :]
        return (q[..., None] * S).sum(-2), S


@pytest.mark.parametrize("own", [SCRN, LMU, HyperLSTM, GatedDeltaNet])
def test_a_cell_in_few_lines_equals_the_built_in_cell(own):
    methods = [inspect.getsource(each) for name, each in vars(own).items() if name in ("step", "lstm")]
    assert sum(len([line for line in text.splitlines() if line.strip()]) for text in methods) <= 15
    built_in = (gg.cells.CLASSIC | gg.cells.STATE_SPACES | gg.cells.MATRIX_MEMORIES)[own.__name__]()
    input_size, hidden_size = example_sizes(built_in)
    ours = gg.Recurrent(own(), input_size, hidden_size, dtype=torch.float64)
    theirs = gg.Recurrent(built_in, input_size, hidden_size, dtype=torch.float64)
    with torch.no_grad():
        for number, (name, value) in enumerate(ours.named_parameters()):
            value.copy_(noise(number, *value.shape) / 4)
            theirs.get_parameter(name).copy_(value)
        if own is HyperLSTM:
            theirs.y_l0.zero_()  # a bias that the few lines leave out
        x = noise(99, 4, 2, input_size)
        assert torch.allclose(ours(x)[0], theirs(x)[0], rtol=0, atol=1e-10)
    assert gg.check(own())
