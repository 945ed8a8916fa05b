"""Training steps of so few rows that no pass packs the weights, compared with the reference in float64."""

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
@pytest.mark.parametrize(("steps", "rows"), [(1, 1), (3, 1), (1, 2)])
def test_gradients_without_packing(layer, options, dtype, steps, rows):
    H = 100
    double = layer(5, H, dtype=torch.float64, **options)
    for k, weight in enumerate(double.parameters()):
        weight.data = noise(k, *weight.shape) / 10
    ours = layer(5, H, dtype=dtype, **options)
    ours.load_state_dict(double.state_dict())
    x, gradients = noise(99, steps, rows, 5), []
    for own, engine in ((double, "reference"), (ours, "cpu")):
        leaf = x.to(own.weight_ih_l0.dtype, copy=True).requires_grad_()
        with gg.engine(engine):
            own(leaf)[0].square().sum().backward()
        gradients.append([leaf.grad, *(weight.grad for weight in own.parameters())])
    close = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-6}
    for expected, result in zip(*gradients, strict=True):
        torch.testing.assert_close(result.double(), expected, **close)


@pytest.mark.parametrize(("rows", "forward", "backward"), [(1, True, True), (3, True, True), (4, True, False)])
def test_the_rule_for_few_rows(rows, forward, backward):
    sizes = [KernelSizes(N=1, D=5, H=100, P=100, bits=32, terms=0)]
    assert have_few_rows(rows, sizes) == (forward,)
    assert have_few_rows(rows, sizes, backward=True) == (backward,)
