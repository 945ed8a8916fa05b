"""Jacobians against autograd of torch.nn and of the reference engine, for every built-in cell and for stacks."""

import pytest
import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.dynamics.network import Network
from tests.compare import EXACT, noise

B, D, H = 5, 3, 4
PROJECTED = {"ClippedLSTM", "LayerNormLSTM", "GRUP"}


def with_random_weights(layer: nn.Module) -> nn.Module:
    """Set random weights and biases of scale one, so that gates differ from one half."""
    with torch.no_grad():
        for k, weight in enumerate(layer.parameters()):
            weight.copy_(noise(k, *weight.shape))
    return layer


def jacobian_by_autograd(layer: gg.Recurrent, states: Tensor, x: Tensor) -> Tensor:
    """One step of the layer on the reference engine, differentiated by autograd."""
    network = Network("test", layer)
    cells = [name.split(".")[1] for name in (slot.label for slot in network.slots)]

    def step(flat: Tensor) -> Tensor:
        of_state = {
            name: [flat[:, slot.columns] for slot, cell in zip(network.slots, cells, strict=True) if cell == name]
            for name in dict.fromkeys(cells)
        }
        hx = tuple(torch.stack(v) for v in of_state.values())
        with gg.engine("reference"):
            _, _, new = layer(x.unsqueeze(0), hx if len(hx) > 1 else hx[0], return_states=True)
        return torch.cat([new[slot.label.replace(".", ".forward.")][0] for slot in network.slots], 1).sum(0)

    return torch.autograd.functional.jacobian(step, states).transpose(0, 1)


@pytest.mark.parametrize("name", gg.cells.__all__)
def test_the_jacobian_of_each_cell_equals_autograd(name: str) -> None:
    cell, projection = getattr(gg.cells, name)(), 2 if name in PROJECTED else 0
    layer = with_random_weights(
        gg.Recurrent(cell, D, H, num_layers=2, proj_size=projection, zoneout=0.2).double().eval()
    )
    states = noise(1, B, Network("test", layer).size)
    x = noise(2, B, D)
    truth = jacobian_by_autograd(layer, states, x)
    got = gg.dynamics.jacobian(layer, states, x)
    assert (got - truth).abs().max() <= EXACT * truth.abs().max().clamp_min(1)
    parts = gg.dynamics.jacobian(layer, states, x, by_gate=True)
    assert (sum(parts.values()) - truth).abs().max() <= EXACT * truth.abs().max().clamp_min(1)


def test_the_jacobian_of_residual_layers_equals_autograd() -> None:
    layer = with_random_weights(gg.GRU(D, H, num_layers=3, residual=True).double())
    states, x = noise(1, B, 3 * H), noise(2, B, D)
    assert torch.allclose(
        gg.dynamics.jacobian(layer, states, x), jacobian_by_autograd(layer, states, x), rtol=0, atol=1e-12
    )


def test_the_jacobian_of_an_lstm_equals_autograd_of_torch() -> None:
    torch_cell = with_random_weights(nn.LSTMCell(D, H).double())
    layer = gg.LSTM(D, H).double()
    for name, weight in torch_cell.named_parameters():
        getattr(layer, f"{name}_l0").data.copy_(weight.data)
    states, x = noise(1, B, 2 * H), noise(2, B, D)

    def step(flat: Tensor) -> Tensor:
        return torch.cat(torch_cell(x, tuple(flat.chunk(2, 1))), 1).sum(0)

    truth = torch.autograd.functional.jacobian(step, states).transpose(0, 1)
    assert torch.allclose(gg.dynamics.jacobian(layer, states, x), truth, rtol=0, atol=1e-12)
    hx = tuple(v.unsqueeze(0) for v in states.chunk(2, 1))
    assert torch.equal(gg.dynamics.jacobian(layer, hx, x), gg.dynamics.jacobian(layer, states, x))


def test_the_direct_part_of_an_lstm_is_its_forget_gate() -> None:
    layer = with_random_weights(gg.LSTM(D, H).double())
    states, x = noise(1, B, 2 * H), noise(2, B, D)
    with gg.record(layer) as tape:
        layer(x.unsqueeze(0), tuple(v.unsqueeze(0) for v in states.chunk(2, 1)))
    direct = gg.dynamics.jacobian(layer, states, x, by_gate=True)["direct"][:, H:, H:]
    assert torch.allclose(direct, torch.diag_embed(tape["layer0.forward.f"][0]), rtol=0, atol=1e-12)


class Branching(gg.Cell):
    """A cell without a graph, because its step branches on a value."""

    gates, state = ("n",), ("h",)

    def step(self, a, s):
        return torch.tanh(a.n) if float(s.h.detach().sum()) > -1e9 else s.h


def test_a_cell_without_a_graph_uses_autograd_and_warns() -> None:
    layer = with_random_weights(gg.Recurrent(Branching(), D, H).double())
    plain = gg.RNN(D, H).double()
    plain.load_state_dict(layer.state_dict())
    states, x = noise(1, B, H), noise(2, B, D)
    with pytest.warns(UserWarning, match=r"jacobian: this cell has no graph, .* slow"):
        got = gg.dynamics.jacobian(layer, states, x)
    assert torch.allclose(got, gg.dynamics.jacobian(plain, states, x), rtol=0, atol=1e-12)
    with (
        pytest.warns(UserWarning, match="no graph"),
        pytest.raises(ValueError, match="parts of gates need a cell that has a graph"),
    ):
        gg.dynamics.jacobian(layer, states, x, by_gate=True)


def test_products_along_a_trajectory_are_the_derivative_of_the_last_state() -> None:
    layer, inputs = with_random_weights(gg.LSTM(D, H).double()), noise(3, 7, 1, D)
    path = gg.dynamics.trajectory(layer, inputs)

    def last(flat: Tensor) -> Tensor:
        hx = tuple(v.view(1, 1, H) for v in flat.chunk(2))
        with gg.engine("reference"):
            _, final = layer(inputs, hx)
        return torch.cat([v.flatten() for v in final])

    truth = torch.autograd.functional.jacobian(last, torch.zeros(2 * H, dtype=torch.float64))
    assert torch.allclose(path.product()[0], truth, rtol=0, atol=1e-12)
    assert torch.allclose(path.singular_values()[-1, 0], torch.linalg.svdvals(truth), rtol=0, atol=1e-12)
    _, final = layer(inputs)
    assert torch.allclose(path.states[-1, 0], torch.cat([v.flatten() for v in final]), rtol=0, atol=1e-12)
    assert path.labels[::H] == ("layer0.h", "layer0.c")


def test_invalid_arguments_raise_errors() -> None:
    layer = gg.LSTM(D, H)
    with pytest.raises(
        gg.ShapeError,
        match=r"must be \(B, S\) with S = 8, the states layer0.h, layer0.c side by side, or in the form of hx, got",
    ):
        gg.dynamics.jacobian(layer, torch.zeros(2, 7), torch.zeros(D))
    with pytest.raises(gg.ShapeError, match=r"jacobian: input must be \(H_in,\) or \(B, H_in\) = \(2, 3\), got \(4,\)"):
        gg.dynamics.jacobian(layer, torch.zeros(2, 8), torch.zeros(4))
    with pytest.raises(ValueError, match="bidirectional layer is not a map from one state to the next"):
        gg.dynamics.jacobian(gg.LSTM(D, H, bidirectional=True), torch.zeros(2, 8), torch.zeros(D))
    with pytest.raises(TypeError, match=r"must be a glassgate layer such as gg.LSTM, got LSTM; gg.convert"):
        gg.dynamics.jacobian(nn.LSTM(D, H), torch.zeros(2, 8), torch.zeros(D))
    with pytest.raises(gg.ShapeError, match=r"trajectory: inputs must be \(L, N, H_in\) with H_in = 3, got \(5, 3\)"):
        gg.dynamics.trajectory(layer, torch.zeros(5, 3))
