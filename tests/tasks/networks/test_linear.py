"""`Linear` equals `nn.Linear`, with and without gradients."""

import pytest
import torch
import torch.nn.functional as F

from glassgate.tasks.networks import linear as module
from glassgate.tasks.networks.linear import Linear, linear


@pytest.mark.parametrize("shape", [(5, 64), (3, 100, 64), (0, 64)])
@pytest.mark.parametrize("bias", [True, False])
def test_without_gradients_it_equals_the_product_of_torch(shape, bias):
    torch.manual_seed(0)
    layer, input = Linear(64, 2000, bias), torch.randn(shape)
    with torch.no_grad():
        expected = F.linear(input.double(), layer.weight.double(), layer.bias.double() if bias else None)
        torch.testing.assert_close(layer(input).double(), expected, rtol=0, atol=1e-5)


def test_without_the_operator_of_onednn_it_is_torch_s_own(monkeypatch):
    input, weight = torch.randn(40, 64), torch.randn(2000, 64)
    with torch.no_grad():
        monkeypatch.setattr(module, "_ONEDNN", None)
        assert linear(input, weight).equal(F.linear(input, weight))
        monkeypatch.setattr(module, "_ONEDNN", lambda input, weight, *_: input.new_zeros(1))
        assert linear(input, weight).equal(torch.zeros(1))


def test_with_gradients_it_is_torch_s_own():
    layer, input = Linear(64, 2000), torch.randn(40, 64, requires_grad=True)
    layer(input).sum().backward()
    torch.testing.assert_close(input.grad, layer.weight.sum(0).expand(40, -1).detach())
    assert layer.weight.grad is not None


def test_other_precisions_do_not_change():
    input, weight = torch.randn(40, 64), torch.randn(2000, 64)
    with torch.no_grad():
        for dtype in (torch.float64, torch.bfloat16):
            assert linear(input.to(dtype), weight.to(dtype)).dtype == dtype
        with torch.autocast("cpu", torch.bfloat16):
            assert linear(input, weight).dtype == torch.bfloat16
