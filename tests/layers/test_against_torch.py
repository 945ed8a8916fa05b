"""The drop-in layers and cells against `torch.nn`: values, gradients, weights by seed, names and state dicts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import glassgate as gg
from glassgate.engines.choose import engines
from tests.cases import STATES, Construction, constructions
from tests.compare import Results, check, measure, noise


def ours(case: Construction, stock: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Create our layer with the arguments and weights of a layer of `torch.nn`."""
    layer = getattr(gg, case.kind)(**case.options, dtype=dtype)
    layer.load_state_dict(stock.state_dict(), strict=True)
    return layer


@given(constructions())
def test_layers_equal_torch_in_float64(engine, case):
    stock = case.stock()
    check(case.call(ours(case, stock)), case.call(stock))


# How torch's own kernels round in 32 bits is torch's.
@pytest.mark.parametrize(
    "engine", [name for name in engines() if name not in ("reference", "torch", "triton")], indirect=True
)
@given(constructions())
def test_float32_errors_are_at_most_those_of_eager(engine, case):
    stock = case.stock().float().double()
    layer = ours(case, stock, torch.float32)
    with gg.engine("reference"):
        truth, eager = case.call(ours(case, stock)), case.call(layer)
    check(*(pooled(results) for results in (case.call(layer), truth, eager)))


def pooled(results: Results) -> Results:
    """Join all tensors to one result, because the error of a tiny tensor in eager mode is random."""
    return {"everything": torch.cat([value.flatten() for value in results.values()])}


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@given(
    sizes=st.tuples(*[st.integers(1, 6)] * 3),
    bias=st.booleans(),
    rows=st.booleans(),
    hx=st.booleans(),
    relu=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_cells_equal_torch_in_float64(kind, sizes, bias, rows, hx, relu, seed):
    N, H_in, H = sizes
    options = {"nonlinearity": "relu"} if relu and kind == "RNN" else {}
    stock = getattr(nn, f"{kind}Cell")(H_in, H, bias, **options, dtype=torch.float64)
    for k, weight in enumerate(stock.parameters()):
        weight.data = noise(seed + k, *weight.shape) / H**0.5
    cell = getattr(gg, f"{kind}Cell")(H_in, H, bias, **options, dtype=torch.float64)
    cell.load_state_dict(stock.state_dict(), strict=True)
    lead = (N,) if rows else ()

    def call(module):
        leaves = {"input": noise(seed + 10, *lead, H_in).requires_grad_()}
        if hx:
            leaves |= {f"{s}_0": noise(seed + 20 + k, *lead, H).requires_grad_() for k, s in enumerate(STATES[kind])}
        given = tuple(leaves.values())[1:]
        new = module(leaves["input"], None if not hx else given if len(given) > 1 else given[0])
        outputs = dict(zip(STATES[kind], new if isinstance(new, tuple) else (new,), strict=True))
        return measure(outputs, leaves | dict(module.named_parameters()), seed)

    check(call(cell), call(stock))
