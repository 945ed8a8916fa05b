"""`recompute=True` gives the same results and gradients, and saves less memory for the backward pass."""

import pytest
import torch

import glassgate as gg

L, N, D, H = 23, 4, 3, 5

FIFTH = torch.arange(L * N).view(L, N) % 5 == 2
FORMS = {
    "padded": {},
    "lengths": {"lengths": torch.tensor([9, L, 0, 14])},
    "resets": {"resets": FIFTH},
    "restart": {"resets": FIFTH, "restart": 2 * (torch.ones(4, N, H, dtype=torch.float64),)},
    "both": {"lengths": torch.tensor([9, L, 1, 14]), "resets": torch.arange(L * N).view(L, N) % 3 == 2},
}


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("form", FORMS)
def test_recompute_gives_the_same_results_and_gradients(form, engine):
    torch.manual_seed(0)
    options = {"bidirectional": True, "num_layers": 2, "zoneout": 0.2, "dtype": torch.float64}
    plain, thrifty = gg.LSTM(D, H, **options), gg.LSTM(D, H, recompute=True, **options)
    thrifty.load_state_dict(plain.state_dict())
    x = torch.randn(L, N, D, dtype=torch.float64)
    hx = torch.randn(2, 4, N, H, dtype=torch.float64)
    weight = torch.randn(L, N, 2 * H, dtype=torch.float64)

    def results(layer):
        inputs = [x.clone().requires_grad_(), hx.clone().requires_grad_()]
        torch.manual_seed(1)
        with gg.engine(engine):
            output, (h_n, c_n), states = layer(inputs[0], tuple(inputs[1]), return_states=True, **FORMS[form])
        total = (output * weight).sum() + h_n.square().sum() + c_n.sin().sum() + states["layer0.reverse.c"].sin().sum()
        return [output, h_n, c_n, *torch.autograd.grad(total, [*inputs, *layer.parameters()])]

    for ours, expected in zip(results(thrifty), results(plain), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-12, rtol=0)


def test_recompute_saves_less_memory():
    def kept(recompute):
        layer, sizes = gg.LSTM(8, 16, recompute=recompute), []

        def pack(tensor):
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            layer(torch.randn(400, 2, 8))
        return sum(sizes)

    assert kept(True) < kept(False) / 4
