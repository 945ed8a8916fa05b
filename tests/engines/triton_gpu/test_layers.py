"""Layers on the kernels of a GPU, in Triton's interpreter: the list of the engines' tests, other cells."""

import pytest
import torch

import glassgate as gg
from tests.compare import check, measure
from tests.engines import test_engines


@pytest.mark.gpu
@pytest.mark.parametrize("cell", test_engines.CELLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_all_layers_equal_the_reference(dtype, cell):
    test_engines.test_engine_equals_the_reference("triton", dtype, cell)


CELLS = [gg.cells.RNN("relu"), gg.cells.LSTM(), gg.cells.GRU(), gg.cells.GRUv1(), gg.cells.PeepholeLSTM()]
CELLS += [gg.cells.SLSTM(heads=2), gg.cells.LayerNormGRU(), gg.cells.MinGRU()]


def run(cell, engine, dtype, hidden_size=6, **options):
    """Output, final states and gradients of a layer with both directions, resets and sequences of unequal length."""
    torch.manual_seed(0)
    layer = gg.Recurrent(cell, 3, hidden_size, bidirectional=True, dtype=torch.float64, **options).to(dtype)
    x = torch.randn(4, 3, 3, dtype=torch.float64).to(dtype).requires_grad_()
    resets = torch.tensor([[0, 0, 1], [1, 0, 0], [0, 0, 0], [1, 0, 0]]).bool()
    with gg.engine(engine):
        torch.manual_seed(0)
        output, final = layer(x, lengths=torch.tensor([4, 0, 2]), resets=resets)
        final = final if isinstance(final, tuple) else (final,)
        outputs = {"output": output} | {f"final {k}": v for k, v in enumerate(final)}
        return measure(outputs, {"input": x, **dict(layer.named_parameters())})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("cell", CELLS, ids=repr)
def test_layers_equal_the_reference(cell, dtype):
    check(run(cell, "triton", dtype), run(cell, "reference", torch.float64), run(cell, "reference", dtype))


def test_projection_and_noise():
    options = {"proj_size": 2, "zoneout": 0.3, "recurrent_dropout": 0.2}
    truth, eager = (run(gg.cells.LSTM(), "reference", dtype, **options) for dtype in (torch.float64, torch.float32))
    check(run(gg.cells.LSTM(), "triton", torch.float32, **options), truth, eager)
