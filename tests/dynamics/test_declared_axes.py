"""The analyses accept cells that declare axes. Their flat states have the last axis fastest."""

import pytest
import torch

import glassgate as gg
from tests.export.cases import ARRAYS, layer_of_arrays

NAMES = ["DeltaRule", "GatedDeltaNet", "MLSTM", "TLSTM", "GRUD", "Blocks", "Skip"]
pytestmark = pytest.mark.filterwarnings("ignore:cell .* runs on the reference engine")


@pytest.mark.parametrize("name", NAMES)
def test_jacobians_equal_autograd(name):
    torch.manual_seed(0)
    layers = 1 if ARRAYS[name].inputs else 2
    layer = layer_of_arrays(name, dtype=torch.float64, num_layers=layers, learn_initial_state=True)
    x = torch.randn(5, 2, layer.input_size, dtype=torch.float64)
    path = gg.dynamics.trajectory(layer, x)
    with gg.engine("reference"):
        final = layer(x)[1]
        final = final if isinstance(final, tuple) else (final,)
        row = [v[:, :1] for v in final]
        flat = torch.cat([v[k].flatten() for k in range(layers) for v in row]).detach()
        torch.testing.assert_close(path.states[-1, 0], flat)
        sizes = [v[0].numel() for v in row]

        def step(flat):
            parts = [part.split(sizes) for part in flat.split(sum(sizes))]
            hx = tuple(torch.stack([p[k].view_as(v[0]) for p in parts]) for k, v in enumerate(row))
            _, after = layer(x[:1, :1], hx if len(hx) > 1 else hx[0])
            after = after if isinstance(after, tuple) else (after,)
            return torch.cat([v[k].flatten() for k in range(layers) for v in after])

        expected = torch.autograd.functional.jacobian(step, flat)
    torch.testing.assert_close(gg.dynamics.jacobian(layer, flat, x[0, 0])[0], expected, rtol=1e-9, atol=1e-12)
    in_form_of_hx = gg.dynamics.jacobian(layer, row if len(row) > 1 else row[0], x[0, 0])[0]
    torch.testing.assert_close(in_form_of_hx, expected, rtol=1e-9, atol=1e-12)


def test_other_analyses():
    torch.manual_seed(0)
    layer = layer_of_arrays("GatedDeltaNet", dtype=torch.float64)
    x = torch.randn(6, 2, layer.input_size, dtype=torch.float64)
    survival = gg.dynamics.survival(layer, x, differences=32)
    singular_values = gg.dynamics.trajectory(layer, x).singular_values()
    torch.testing.assert_close(survival, singular_values.square().mean(2).sqrt(), rtol=1e-6, atol=1e-12)
    points = gg.dynamics.fixed_points(layer, x[0, 0], gg.dynamics.trajectory(layer, x).states[-1])
    assert len(points.states) == 1
    repeated = gg.dynamics.trajectory(layer, x[:1, :1].expand(400, -1, -1)).states
    torch.testing.assert_close(repeated[-1, 0], points.states[0], rtol=1e-5, atol=1e-8)
    assert gg.dynamics.lyapunov(layer, x.repeat(20, 1, 1)).exponents[0] < 0
    with pytest.raises(ValueError, match="the parts of gates need a cell that has a graph"):
        gg.dynamics.jacobian(layer, repeated[-1, 0], x[0, 0], by_gate=True)
    with pytest.raises(gg.ShapeError, match=r"states must be \(B, S\) with S = 32"):
        gg.dynamics.jacobian(layer, torch.zeros(1, 31), x[0, 0])
