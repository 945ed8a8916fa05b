"""Layers on the kernels of a GPU, in Triton's interpreter: the list of the engines' tests, other cells."""

import pytest
import torch

import glassgate as gg
from glassgate.engines.triton_gpu import passes
from glassgate.engines.triton_gpu.launch import Blocks, KernelChoice
from tests.compare import check, measure
from tests.engines import test_engines

# In float16, a pre-activation within the rounding error of zero gives ReLU another derivative.
EVERY = [(dtype, cell) for dtype in (torch.float32, torch.float16) for cell in test_engines.CELLS]
EVERY.remove((torch.float16, "ReLU"))


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "cell"), EVERY, ids=lambda v: str(v).removeprefix("torch."))
def test_all_layers_equal_the_reference(dtype, cell):
    # In float16, eager's error on the gradient of one bias is up to six times that of the other one, which is equal.
    test_engines.check_engine("triton", dtype, cell, slack=2.0 if dtype == torch.float16 else 1.0)


CELLS = [gg.cells.RNN("relu"), gg.cells.LSTM(), gg.cells.GRU(), gg.cells.GRUv3(), gg.cells.PeepholeLSTM()]
CELLS += [gg.cells.SLSTM(heads=2), gg.cells.LayerNormGRU(), gg.cells.MinGRU()]


def in_gpu(*parameters):
    """Return a case that only `make test-gpu` runs."""
    return pytest.param(*parameters, marks=pytest.mark.gpu)


def run(cell, engine, dtype, hidden_size=6, lengths=(4, 0, 2), **options):
    """Output, final states and gradients of a layer with both directions, resets and sequences of unequal length."""
    torch.manual_seed(0)
    layer = gg.Recurrent(cell, 3, hidden_size, bidirectional=True, dtype=torch.float64, **options).to(dtype)
    x = torch.randn(4, 3, 3, dtype=torch.float64).to(dtype).requires_grad_()
    resets = torch.tensor([[0, 0, 1], [1, 0, 0], [0, 0, 0], [1, 0, 0]]).bool()
    with gg.engine(engine):
        torch.manual_seed(0)
        output, final = layer(x, lengths=None if lengths is None else torch.tensor(lengths), resets=resets)
        final = final if isinstance(final, tuple) else (final,)
        outputs = {"output": output} | {f"final {k}": v for k, v in enumerate(final)}
        return measure(outputs, {"input": x, **dict(layer.named_parameters())})


FLOAT16 = ("LSTM", "GRUv3", "LayerNormGRU")
"""The cells that run in float16 without `make test-gpu`."""
RUNS = [(cell, torch.float32) for cell in CELLS]
RUNS += [(cell, torch.float16) if type(cell).__name__ in FLOAT16 else in_gpu(cell, torch.float16) for cell in CELLS]


@pytest.mark.parametrize(("cell", "dtype"), RUNS, ids=lambda v: str(v).removeprefix("torch."))
def test_layers_equal_the_reference(cell, dtype):
    check(run(cell, "triton", dtype), run(cell, "reference", torch.float64), run(cell, "reference", dtype))


def test_projection_and_noise():
    options = {"proj_size": 2, "zoneout": 0.3, "recurrent_dropout": 0.2}
    truth, eager = (run(gg.cells.LSTM(), "reference", dtype, **options) for dtype in (torch.float64, torch.float32))
    check(run(gg.cells.LSTM(), "triton", torch.float32, **options), truth, eager)


class Delay(gg.Cell):
    """States that take the values of each other before the step, one of which is also read after its update."""

    gates, state = ("a",), ("h", "delayed", "u")

    def step(self, a, s):
        u = 0.9 * s.u + 0.1 * s.h
        return torch.tanh(a.a + s.delayed) * u + 0.3 * s.u, s.h, u


NOISE, ONE = {"zoneout": 0.3}, Blocks(16, 16, 16)


EQUAL_LENGTHS = [
    *((kernel, gg.cells.LSTM(), {}) for kernel in "AC"),
    *((kernel, gg.cells.GRUv3(), NOISE) for kernel in "BC"),
    *((kernel, Delay(), NOISE) for kernel in "AC"),
    *((kernel, Delay(), {}) for kernel in "BC"),
    *(in_gpu(kernel, gg.cells.LSTM(), NOISE) for kernel in "ABC"),
    *(in_gpu("B", gg.cells.LSTM(), {}), in_gpu("A", gg.cells.GRUv3(), NOISE)),
    *(in_gpu("B", Delay(), NOISE), in_gpu("A", Delay(), {})),
]
"""`make test-gpu` runs every combination. The normal run has each kernel with and without noise, and each cell."""


@pytest.mark.parametrize(("kernel", "cell", "options"), EQUAL_LENGTHS, ids=str)
def test_sequences_of_equal_length(cell, options, kernel, monkeypatch):
    """Without lengths, kernel C has the next states as expressions, whose variables the next step sets again."""
    kinds = {"A": KernelChoice("solo", 0.0, ONE), "B": KernelChoice("grid", 0.0, ONE), "C": KernelChoice("steps", 0.0)}
    monkeypatch.setattr(passes, "select_kernel", lambda *_: kinds[kernel])
    truth, eager = (run(cell, "reference", dtype, lengths=None, **options) for dtype in (torch.float64, torch.float32))
    check(run(cell, "triton", torch.float32, lengths=None, **options), truth, eager)
