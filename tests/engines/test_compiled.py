"""Layers under torch.compile in one whole graph: every kind, dtype and autocast, trained, changed, at any length."""

from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch

import glassgate as gg

D, N = 3, 4


class Own(gg.Cell):
    """A cell of a user's own: a parameter, a mean over units, two states, an attribute that `step` reads."""

    gates = ("f", "n")
    state = ("h", "c")
    parameters = {"gain": gg.Parameter(1.0)}

    def __init__(self):
        self.rate = 0.5

    def step(self, a, s, p):
        c = torch.sigmoid(a.f) * s.c + self.rate * torch.tanh(p.gain * a.n)
        return c - c.mean(-1, keepdim=True), c


LAYERS = {
    "RNN": lambda **kw: gg.RNN(D, 5, **kw),
    "GRU": lambda **kw: gg.GRU(D, 5, batch_first=True, **kw),
    "LSTM": lambda **kw: gg.LSTM(D, 5, **kw),
    "own": lambda **kw: gg.Recurrent(Own(), D, 5, **kw),
    "bidirectional": lambda **kw: gg.GRU(D, 5, bidirectional=True, **kw),
    "projected": lambda **kw: gg.LSTM(D, 5, proj_size=2, **kw),
    "stacked": lambda **kw: gg.LSTM(D, 5, num_layers=2, dropout=0.5, zoneout=0.2, **kw),
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def cases():
    for name in LAYERS:
        for dtype in DTYPES:
            for autocast in (False, True):
                few = (name, dtype, autocast) == ("own", torch.float32, True)
                yield pytest.param(name, dtype, autocast, marks=() if few else pytest.mark.matrix)


def results(module, layer, x, **more):
    """The output, the final states and the gradients of everything."""
    torch.manual_seed(1)
    leaf = x.clone().requires_grad_()
    output, final = module(leaf, **more)
    states = final if isinstance(final, tuple) else (final,)
    total = sum((v.float() * torch.linspace(-1, 1, v.numel()).view(v.shape)).sum() for v in (output, *states))
    return [output, *states, *torch.autograd.grad(total, [leaf, *layer.parameters()])]


def agree(compiled, layer, x, **more):
    for ours, plain in zip(results(compiled, layer, x, **more), results(layer, layer, x, **more), strict=True):
        assert ours.dtype == plain.dtype
        torch.testing.assert_close(ours, plain, rtol=0, atol=0)


@pytest.fixture
def _compiler_forgets():
    """It makes so many graphs of one function and no more, whichever layers they are of."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_compiler_forgets")
@pytest.mark.parametrize(("name", "dtype", "autocast"), list(cases()))
def test_compiled_in_one_graph(name, dtype, autocast):
    torch.manual_seed(0)
    layer = LAYERS[name](dtype=dtype)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")

    def batch(L):
        return torch.randn(*((N, L) if layer.batch_first else (L, N)), D, dtype=dtype)

    many_forms = torch._dynamo.config.patch(recompile_limit=32)
    with many_forms, torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        for L in (6, 9, 1):
            agree(compiled, layer, batch(L))
        for lengths in ([3, 6, 1, 2], [4, 0, 2, 6]):
            agree(compiled, layer, batch(6), lengths=torch.tensor(lengths))
        twin, x = deepcopy(layer), batch(5)
        for module, call in ((layer, compiled), (twin, twin)):
            optimizer = torch.optim.SGD(module.parameters(), 0.1)
            torch.manual_seed(2)
            for _ in range(3):
                optimizer.zero_grad()
                call(x)[0].float().square().sum().backward()
                optimizer.step()
        for ours, plain in zip(layer.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours, plain, rtol=0, atol=0)
        with torch.no_grad():
            layer.weight_hh_l0.mul_(0.5)
        layer.eval()
        agree(compiled, layer, x)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x)[0], layer(x)[0])
        with gg.engine("cpu"):
            agree(compiled, layer, x.transpose(0, 1).contiguous().transpose(0, 1))
        if name == "own":
            layer.cell.rate = 0.25
            agree(compiled, layer, x)
