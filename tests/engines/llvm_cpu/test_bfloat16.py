"""Under autocast to bfloat16 kernels are at most twice as far from float64 as a loop in plain torch.

Where three products of bfloat16 make one of float32, they are hundreds of times nearer to it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import linear

import glassgate as gg
from glassgate.engines.llvm_cpu.processor import Processor, host, pretend
from tests.compare import noise
from tests.engines.llvm_cpu.amx_interpreter import INTERPRETED

TILES = Processor(64, 32, host().bfloat16 or "emulated", INTERPRETED)
IN_MATRIX = pytest.param(TILES, marks=pytest.mark.matrix)
PROCESSORS = {
    "this one": host(),
    "one that has no bfloat16": host().full_precision,
    "emulated": Processor(32, 16, "emulated"),
}


@contextmanager
def switched(matrix: str, layer: str = "none") -> Iterator[None]:
    """torch's switches for products of float32, of all kinds and of recurrent layers."""
    matrices, layers = torch.get_float32_matmul_precision(), torch.backends.mkldnn.rnn.fp32_precision
    try:
        torch.set_float32_matmul_precision(matrix)
        torch.backends.mkldnn.rnn.fp32_precision = layer
        yield
    finally:
        torch.set_float32_matmul_precision(matrices)
        torch.backends.mkldnn.rnn.fp32_precision = layers


class Own(gg.Cell):
    """Two products per step, the second of the first one's result, heads of an odd size, and a mean over units."""

    gates = ("r", "n")
    heads = 3

    def step(self, a, s):
        r = torch.sigmoid(a.r)
        n = torch.tanh(a.ih.n + a.hh(r * s.h).n)
        return r * s.h + (1 - r) * (n - n.mean(-1, keepdim=True))


def lstm(x, h, c, w_ih, w_hh, b_ih, b_hh):
    """As anyone would write it."""
    every = []
    for x_t in x:
        i, f, g, o = (linear(x_t, w_ih, b_ih) + linear(h, w_hh, b_hh)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        every.append(h)
    return torch.stack(every), h, c


def results(call, x, leaves, autocast):
    """Outputs, and the gradients of everything, of a loss that all outputs have a part in."""
    leaves = [v.detach().requires_grad_() for v in (x, *leaves)]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outputs = call(*leaves)
    loss = sum((v.double() * noise(k, *v.shape)).sum() for k, v in enumerate(outputs))
    return [*outputs, *torch.autograd.grad(loss, leaves, materialize_grads=True)]


def no_worse(ours, eager, truth, times=2.0):
    """Raises unless each result's error, in root mean square, is at most so many times the loop's."""
    for k, (a, b, t) in enumerate(zip(ours, eager, truth, strict=True)):
        error, allowed = (a.double() - t).square().mean().sqrt(), times * (b.double() - t).square().mean().sqrt()
        assert error <= allowed, f"result {k}: {error:.2g}, allowed {allowed:.2g}"


class Lstm:
    """A layer and the loop that it is compared with, by the same numbers."""

    def __init__(self):
        L, N, D, H = 7, 5, 33, 65
        self.layer, self.x = gg.LSTM(D, H), noise(0, L, N, D).float()
        self.leaves = [noise(1, N, H).float(), noise(2, N, H).float(), *self.layer.parameters()]

    def call(self, x, h, c, *weights):
        """The layer's."""
        named = dict(zip(dict(self.layer.named_parameters()), weights, strict=True))
        output, (h_n, c_n) = functional_call(self.layer, named, (x, (h[None], c[None])))
        return output, h_n[0], c_n[0]

    def ours(self, autocast):
        """Its results on the kernels."""
        with gg.engine("cpu"):
            return results(self.call, self.x, self.leaves, autocast)

    def loop(self):
        """The loop's under autocast, and in float64."""
        exact = results(lstm, self.x.double(), [v.double() for v in self.leaves], False)
        return results(lstm, self.x, self.leaves, True), exact


@pytest.mark.parametrize("processor", [*PROCESSORS.values(), TILES], ids=[*PROCESSORS, "emulated tiles"])
def test_lstm(processor):
    case = Lstm()
    with pretend(processor):
        no_worse(case.ours(True), *case.loop())


@pytest.mark.parametrize("processor", [*PROCESSORS.values(), IN_MATRIX], ids=[*PROCESSORS, "emulated tiles"])
def test_torch_s_switches_for_float32(processor):
    case, first, again = Lstm(), {}, {}
    meant = {"ieee": "highest", "tf32": "high", "bf16": "medium"}
    for matrix in ("highest", "high", "medium"):
        for layer in ("none", *meant):
            with pretend(processor), switched(matrix, layer), gg.engine("cpu"):
                first[matrix, layer] = case.ours(False)
                # Repeated calls use the executable for the current switches.
                again[matrix, layer] = [case.layer(case.x)[0] for _ in range(3)]
    for (matrix, layer), values in first.items():
        same = meant.get(layer, matrix), "none"
        assert {v.dtype for v in values} == {torch.float32}
        assert all(map(torch.equal, values, first[same])), (matrix, layer)
        assert all(torch.equal(v, again[same][0]) for v in again[matrix, layer]), (matrix, layer)
    no_worse(first["medium", "none"], *case.loop())
    for results in (first, again):
        highest, high, medium = (results[matrix, "none"][0] for matrix in ("highest", "high", "medium"))
        assert torch.equal(medium, highest) != bool(processor.bfloat16)
        assert torch.equal(high, highest) != bool(processor.tiles)
    if processor.tiles:
        no_worse(first["high", "none"], *case.loop(), times=1 / 200)


CELLS = {
    "own": (Own(), {"bidirectional": True, "num_layers": 2}, {"lengths": [3, 0, 9, 1, 9]}),
    "layer-normalised": (gg.cells.LayerNormLSTM(), {"proj_size": 5}, {"resets": noise(9, 9, 5) > 0.5}),
}


WAYS = {"this one": (host(), "medium"), "emulated tiles": (TILES, "medium"), "three": (TILES, "high")}


@pytest.mark.parametrize("way", ["this one", pytest.param("emulated tiles", marks=pytest.mark.matrix), "three"])
@pytest.mark.parametrize("name", ["own", pytest.param("layer-normalised", marks=pytest.mark.matrix)])
def test_any_cell(name, way):
    processor, precision = WAYS[way]
    cell, options, more = CELLS[name]
    layer = gg.Recurrent(cell, 7, 15, **options)
    x, names = noise(0, 9, 5, 7).float(), dict(layer.named_parameters())

    def call(x, *weights):
        output, final = functional_call(layer, dict(zip(names, weights, strict=True)), (x,), more)
        return (output, *final) if isinstance(final, tuple) else (output, final)

    with gg.engine("reference"):
        truth = results(call, x.double(), [v.double() for v in names.values()], False)
        eager = results(call, x, list(names.values()), True)
    with gg.engine("cpu"), pretend(processor), switched(precision):
        ours = results(call, x, list(names.values()), precision == "medium")
    no_worse(ours, eager, truth, times=2 if precision == "medium" else 1 / 200)


def test_explain_names_the_instructions():
    layer, x = gg.LSTM(3, 4), torch.randn(5, 2, 3)
    with gg.engine("cpu"), pretend(TILES):
        assert gg.explain(layer, x).detail is None
        with torch.autocast("cpu", torch.bfloat16):
            assert "  products in bfloat16: by AMX-BF16\n" in f"{gg.explain(layer, x)}\n"
        with torch.autocast("cpu", torch.bfloat16), gg.engine("torch"):
            assert gg.explain(layer, x).detail is None
        with switched("high"):
            assert (
                gg.explain(layer, torch.randn(5, 3, 3)).detail
                == "products in bfloat16: by AMX-BF16, three instead of one in float32"
            )
            assert (
                gg.explain(layer, x).detail
                == 'products in bfloat16: none, computed in float32; "high" needs more than 2 sequences'
            )
            with pretend(host().full_precision):
                assert 'computed in float32; "high" needs AMX-BF16 (' in gg.explain(layer, x).detail
        with torch.autocast("cpu", torch.bfloat16), pretend(host().full_precision):
            assert gg.explain(layer, x).detail == "products in bfloat16: none, computed in float32"
