"""Calls with so few rows that passes read the weights without packing them, compared with the reference in float64."""

import pytest
import torch

import glassgate as gg
from glassgate.engines.llvm_cpu.plan import have_few_rows
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from tests.compare import noise


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (gg.LSTM, {"bidirectional": True}),
        (gg.LSTM, {"proj_size": 40}),
        (gg.GRU, {"num_layers": 2}),
        (gg.RNN, {}),
    ],
)
@pytest.mark.parametrize(("steps", "N"), [(1, 1), (3, 1), (1, 2)])
def test_gradients_without_packed_weights(layer, options, dtype, steps, N):
    H = 100
    layer_in_float64 = layer(5, H, dtype=torch.float64, **options)
    for k, weight in enumerate(layer_in_float64.parameters()):
        weight.data = noise(k, *weight.shape) / 10
    layer_in_dtype = layer(5, H, dtype=dtype, **options)
    layer_in_dtype.load_state_dict(layer_in_float64.state_dict())
    data, gradients = noise(99, steps, N, 5), []
    for module, engine in ((layer_in_float64, "reference"), (layer_in_dtype, "cpu")):
        x = data.to(module.weight_ih_l0.dtype, copy=True).requires_grad_()
        with gg.engine(engine):
            module(x)[0].square().sum().backward()
        gradients.append([x.grad, *(weight.grad for weight in module.parameters())])
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-6}
    for expected, result in zip(*gradients, strict=True):
        torch.testing.assert_close(result.double(), expected, **tolerance)


@pytest.mark.parametrize(
    ("H", "rows", "forward", "backward"),
    [
        *((100, 1, True, True), (100, 3, True, True), (100, 4, True, False)),
        *((5000, 32, True, True), (5000, 33, True, False), (5000, 65, False, False)),
    ],
)
def test_have_few_rows(H, rows, forward, backward):
    sizes = [KernelSizes(N=1, D=5, H=H, P=H, bits=32)]
    assert have_few_rows(rows, sizes) == (forward,)
    assert have_few_rows(rows, sizes, backward=True) == (backward,)
