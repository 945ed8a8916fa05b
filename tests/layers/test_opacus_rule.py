"""Per-sample gradients for Opacus: those of separate backward passes."""

import pytest
import torch

import glassgate as gg
from glassgate.layers.opacus_rule import per_sample_gradients


@pytest.mark.parametrize("batch_first", [True, False])
def test_gradients_of_each_sequence(batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = gg.LSTM(3, 4, batch_first=batch_first, dtype=torch.float64)
    x, d = torch.randn(2, 5, 6, 4, dtype=torch.float64).unbind()
    x = x[..., :3]
    found = per_sample_gradients(layer, [x], d)
    assert found.keys() == {*layer.parameters()}
    for k in range(5):
        row = x[k : k + 1] if batch_first else x[k : k + 1].transpose(0, 1)
        output = layer(row)[0]
        own = torch.autograd.grad(output, list(found), (d[k : k + 1] if batch_first else d[k, :, None]))
        for weight, wanted in zip(found, own, strict=True):
            torch.testing.assert_close(found[weight][k], wanted, rtol=1e-10, atol=1e-12)


def test_random_layers_are_refused() -> None:
    layer = gg.LSTM(3, 4, zoneout=0.1)
    with pytest.raises(RuntimeError, match="per-sample gradients need a layer without dropout, zoneout and noise"):
        per_sample_gradients(layer, [torch.zeros(1, 2, 3)], torch.zeros(1, 2, 4))


@pytest.mark.filterwarnings("ignore")
def test_opacus_finds_the_rule() -> None:
    opacus = pytest.importorskip("opacus.grad_sample")
    model = torch.nn.Sequential(gg.LSTM(3, 4, batch_first=True))
    wrapped = opacus.GradSampleModule(model)
    wrapped(torch.randn(5, 6, 3))[0].sum().backward()
    assert model[0].weight_hh_l0.grad_sample.shape == (5, 16, 4)
