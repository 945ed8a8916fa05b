"""Layers that torch.compile compiles to one graph: training, inference, lengths, changed weights, all dtypes."""

from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch

import glassgate as gg

D, N = 3, 4


class CustomCell(gg.Cell):
    """A custom cell with a parameter, a mean over units, two states, and an attribute that `step` reads."""

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
    "custom": lambda **kw: gg.Recurrent(CustomCell(), D, 5, **kw),
    "bidirectional": lambda **kw: gg.GRU(D, 5, bidirectional=True, **kw),
    "projection": lambda **kw: gg.LSTM(D, 5, proj_size=2, **kw),
    "stacked": lambda **kw: gg.LSTM(D, 5, num_layers=2, dropout=0.5, zoneout=0.2, **kw),
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def cases():
    for name in LAYERS:
        for dtype in DTYPES:
            for autocast in (False, True):
                is_default = (name, dtype, autocast) == ("custom", torch.float32, True)
                yield pytest.param(name, dtype, autocast, marks=() if is_default else pytest.mark.matrix)


def results(module, layer, x, **options):
    """Return the output, the final states and the gradients of the input and the parameters."""
    torch.manual_seed(1)
    leaf = x.clone().requires_grad_()
    output, final = module(leaf, **options)
    states = final if isinstance(final, tuple) else (final,)
    total = sum((v.float() * torch.linspace(-1, 1, v.numel()).view(v.shape)).sum() for v in (output, *states))
    return [output, *states, *torch.autograd.grad(total, [leaf, *layer.parameters()])]


def check_equal(compiled, layer, x, **options):
    pairs = zip(results(compiled, layer, x, **options), results(layer, layer, x, **options), strict=True)
    for compiled_result, eager_result in pairs:
        assert compiled_result.dtype == eager_result.dtype
        torch.testing.assert_close(compiled_result, eager_result, rtol=0, atol=0)


@pytest.fixture
def _empty_compiler_cache():
    """The number of graphs per function is limited. The limit counts the graphs of all layers together."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_empty_compiler_cache")
@pytest.mark.parametrize(("name", "dtype", "autocast"), list(cases()))
def test_compiled_layers_compute_the_same(name, dtype, autocast):
    torch.manual_seed(0)
    layer = LAYERS[name](dtype=dtype)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")

    def batch(L):
        return torch.randn(*((N, L) if layer.batch_first else (L, N)), D, dtype=dtype)

    many_graphs = torch._dynamo.config.patch(recompile_limit=32)
    with many_graphs, torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        for L in (6, 9, 1):
            check_equal(compiled, layer, batch(L))
        for lengths in ([3, 6, 1, 2], [4, 0, 2, 6]):
            check_equal(compiled, layer, batch(6), lengths=torch.tensor(lengths))
        eager, x = deepcopy(layer), batch(5)
        for module, call in ((layer, compiled), (eager, eager)):
            optimizer = torch.optim.SGD(module.parameters(), 0.1)
            torch.manual_seed(2)
            for _ in range(3):
                optimizer.zero_grad()
                call(x)[0].float().square().sum().backward()
                optimizer.step()
        for parameter, expected in zip(layer.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(parameter, expected, rtol=0, atol=0)
        with torch.no_grad():
            layer.weight_hh_l0.mul_(0.5)
        layer.eval()
        check_equal(compiled, layer, x)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x)[0], layer(x)[0])
        with gg.engine("cpu"):
            check_equal(compiled, layer, x.transpose(0, 1).contiguous().transpose(0, 1))
        if name == "custom":
            layer.cell.rate = 0.25
            check_equal(compiled, layer, x)
