"""Per-sample gradients for Opacus equal the gradients of separate backward passes."""

import importlib

import pytest
import torch

import glassgate as gg
from glassgate.layers.opacus_rule import per_sample_gradients


@pytest.mark.parametrize("batch_first", [True, False])
def test_gradients_of_each_sequence_equal_separate_passes(batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = gg.LSTM(3, 4, batch_first=batch_first, dtype=torch.float64)
    x, d = torch.randn(2, 5, 6, 4, dtype=torch.float64).unbind()
    x = x[..., :3]
    gradients = per_sample_gradients(layer, [x], d)
    assert gradients.keys() == {*layer.parameters()}
    for k in range(5):
        row = x[k : k + 1] if batch_first else x[k : k + 1].transpose(0, 1)
        output = layer(row)[0]
        own = torch.autograd.grad(output, list(gradients), (d[k : k + 1] if batch_first else d[k, :, None]))
        for weight, expected in zip(gradients, own, strict=True):
            torch.testing.assert_close(gradients[weight][k], expected, rtol=1e-10, atol=1e-12)


def test_layers_with_noise_are_rejected() -> None:
    layer = gg.LSTM(3, 4, zoneout=0.1)
    with pytest.raises(RuntimeError, match="per-sample gradients need a layer without dropout, zoneout and noise"):
        per_sample_gradients(layer, [torch.zeros(1, 2, 3)], torch.zeros(1, 2, 4))


@pytest.mark.clients
@pytest.mark.filterwarnings("ignore")
def test_opacus_computes_the_gradients_of_separate_passes() -> None:
    opacus = importlib.import_module("opacus.grad_sample")
    model = torch.nn.Sequential(gg.LSTM(3, 4, batch_first=True))
    wrapped = opacus.GradSampleModule(model, loss_reduction="sum")
    x = torch.randn(5, 6, 3)
    wrapped(x)[0].sum().backward()
    samples = {name: weight.grad_sample for name, weight in model[0].named_parameters()}
    for k in range(5):
        own = torch.autograd.grad(model[0](x[k : k + 1])[0].sum(), [*model[0].parameters()])
        for sample, expected in zip(samples.values(), own, strict=True):
            torch.testing.assert_close(sample[k], expected, rtol=1e-5, atol=1e-6)
