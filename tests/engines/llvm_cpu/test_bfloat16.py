"""The error of kernels with products in bfloat16, measured against float64.

With autocast to bfloat16, the error is at most twice that of a loop in plain torch. With three products in bfloat16 in
place of one in float32, the error is less than 1/200 of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import linear

import glassgate as gg
from glassgate.engines.llvm_cpu.amx import is_faster
from glassgate.engines.llvm_cpu.processor import Processor, host, pretend
from glassgate.engines.llvm_cpu.sizes import Arithmetic
from tests.compare import noise
from tests.engines.llvm_cpu.amx_interpreter import INTERPRETED

TILES = Processor(64, 32, host().bfloat16 or "emulated", INTERPRETED)
IN_MATRIX = pytest.param(TILES, marks=pytest.mark.matrix)
PROCESSORS = {
    "host": host(),
    "without bfloat16": host().full_precision,
    "emulated": Processor(32, 16, "emulated"),
}


@contextmanager
def precision_settings(matrix: str, layer: str = "none") -> Iterator[None]:
    """In the `with` block, set torch's precision of float32 products: of matrices, and of recurrent layers."""
    matrices, layers = torch.get_float32_matmul_precision(), torch.backends.mkldnn.rnn.fp32_precision
    try:
        torch.set_float32_matmul_precision(matrix)
        torch.backends.mkldnn.rnn.fp32_precision = layer
        yield
    finally:
        torch.set_float32_matmul_precision(matrices)
        torch.backends.mkldnn.rnn.fp32_precision = layers


class Own(gg.Cell):
    """A cell with two dependent products per step, three heads of odd size, and a mean over units."""

    gates = ("r", "n")
    heads = 3

    def step(self, a, s):
        r = torch.sigmoid(a.r)
        n = torch.tanh(a.ih.n + a.hh(r * s.h).n)
        return r * s.h + (1 - r) * (n - n.mean(-1, keepdim=True))


def lstm(x, h, c, w_ih, w_hh, b_ih, b_hh):
    """Run an LSTM as a loop in plain torch."""
    outputs = []
    for x_t in x:
        i, f, g, o = (linear(x_t, w_ih, b_ih) + linear(h, w_hh, b_hh)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs), h, c


def results(call, x, leaves, autocast):
    """Return the outputs, and the gradients of a random weighted sum of all outputs."""
    leaves = [v.detach().requires_grad_() for v in (x, *leaves)]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outputs = call(*leaves)
    loss = sum((v.double() * noise(k, *v.shape)).sum() for k, v in enumerate(outputs))
    return [*outputs, *torch.autograd.grad(loss, leaves, materialize_grads=True)]


def check_errors(actual, eager, truth, factor=2.0):
    """Check that the root mean square error of each result is at most `factor` times that of the loop."""
    for k, (a, b, t) in enumerate(zip(actual, eager, truth, strict=True)):
        error, allowed = (a.double() - t).square().mean().sqrt(), factor * (b.double() - t).square().mean().sqrt()
        assert error <= allowed, f"result {k}: {error:.2g}, allowed {allowed:.2g}"


class LSTMCase:
    """A layer and a loop in plain torch with the same weights, states and input."""

    def __init__(self):
        L, N, D, H = 7, 5, 33, 65
        self.layer, self.x = gg.LSTM(D, H), noise(0, L, N, D).float()
        self.leaves = [noise(1, N, H).float(), noise(2, N, H).float(), *self.layer.parameters()]

    def call(self, x, h, c, *weights):
        """Call the layer as `lstm` is called."""
        named = dict(zip(dict(self.layer.named_parameters()), weights, strict=True))
        output, (h_n, c_n) = functional_call(self.layer, named, (x, (h[None], c[None])))
        return output, h_n[0], c_n[0]

    def kernel_results(self, autocast):
        """Return the results of the layer on the CPU engine."""
        with gg.engine("cpu"):
            return results(self.call, self.x, self.leaves, autocast)

    def loop_results(self):
        """Return the results of the loop with autocast, and in float64."""
        exact = results(lstm, self.x.double(), [v.double() for v in self.leaves], False)
        return results(lstm, self.x, self.leaves, True), exact


@pytest.mark.parametrize("processor", [*PROCESSORS.values(), TILES], ids=[*PROCESSORS, "emulated tiles"])
def test_error_of_an_lstm_with_autocast(processor):
    case = LSTMCase()
    with pretend(processor):
        check_errors(case.kernel_results(True), *case.loop_results())


@pytest.mark.parametrize("processor", [*PROCESSORS.values(), IN_MATRIX], ids=[*PROCESSORS, "emulated tiles"])
def test_precision_settings_of_torch_select_the_products(processor):
    case, first, repeated = LSTMCase(), {}, {}
    with pretend(processor):
        has_tiles = is_faster(Arithmetic.SPLIT_BFLOAT16, rows=case.x.shape[1])
    equivalent = {"ieee": "highest", "tf32": "high", "bf16": "medium"}
    for matrix in ("highest", "high", "medium"):
        for layer in ("none", *equivalent):
            with pretend(processor), precision_settings(matrix, layer), gg.engine("cpu"):
                first[matrix, layer] = case.kernel_results(False)
                # Repeated calls use the executable for the current settings.
                repeated[matrix, layer] = [case.layer(case.x)[0] for _ in range(3)]
    for (matrix, layer), values in first.items():
        same = equivalent.get(layer, matrix), "none"
        assert {v.dtype for v in values} == {torch.float32}
        assert all(map(torch.equal, values, first[same])), (matrix, layer)
        assert all(torch.equal(v, repeated[same][0]) for v in repeated[matrix, layer]), (matrix, layer)
    check_errors(first["medium", "none"], *case.loop_results())
    for results in (first, repeated):
        highest, high, medium = (results[matrix, "none"][0] for matrix in ("highest", "high", "medium"))
        assert torch.equal(medium, highest) != bool(processor.bfloat16)
        assert torch.equal(high, highest) != has_tiles
    if has_tiles:
        check_errors(first["high", "none"], *case.loop_results(), factor=1 / 200)


CELLS = {
    "dependent products": (Own(), {"bidirectional": True, "num_layers": 2}, {"lengths": [3, 0, 9, 1, 9]}),
    "layer-normalised": (gg.cells.LayerNormLSTM(), {"proj_size": 5}, {"resets": noise(9, 9, 5) > 0.5}),
}


METHODS = {"host": (host(), "medium"), "emulated tiles": (TILES, "medium"), "three": (TILES, "high")}


@pytest.mark.parametrize("method", ["host", pytest.param("emulated tiles", marks=pytest.mark.matrix), "three"])
@pytest.mark.parametrize("name", ["dependent products", pytest.param("layer-normalised", marks=pytest.mark.matrix)])
def test_error_of_other_cells(name, method):
    processor, precision = METHODS[method]
    cell, options, call_options = CELLS[name]
    layer = gg.Recurrent(cell, 7, 15, **options)
    x, names = noise(0, 9, 5, 7).float(), dict(layer.named_parameters())

    def call(x, *weights):
        output, final = functional_call(layer, dict(zip(names, weights, strict=True)), (x,), call_options)
        return (output, *final) if isinstance(final, tuple) else (output, final)

    with gg.engine("reference"):
        truth = results(call, x.double(), [v.double() for v in names.values()], False)
        eager = results(call, x, list(names.values()), True)
    with gg.engine("cpu"), pretend(processor), precision_settings(precision):
        actual = results(call, x, list(names.values()), precision == "medium")
    check_errors(actual, eager, truth, factor=2 if precision == "medium" else 1 / 200)


def test_explain_names_the_instructions():
    layer, x = gg.LSTM(3, 4), torch.randn(5, 2, 3)
    with gg.engine("cpu"), pretend(TILES):
        assert gg.explain(layer, x).detail is None
        with torch.autocast("cpu", torch.bfloat16):
            assert "  products in bfloat16: by AMX-BF16\n" in f"{gg.explain(layer, x)}\n"
        with torch.autocast("cpu", torch.bfloat16), gg.engine("torch"):
            assert gg.explain(layer, x).detail is None
        with precision_settings("high"):
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
