"""Fixed points in closed form, and those of networks trained on the tasks of Sussillo and Barak 2013."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import glassgate as gg
from tests.compare import noise


def test_fixed_points_of_independent_units_equal_the_roots(tmp_path: Path) -> None:
    """h = tanh(2 h) has the roots 0 and +-0.9575 in each unit."""
    layer = gg.RNN(1, 2, bias=False).double()
    layer.weight_hh_l0.data.copy_(2.0 * torch.eye(2))
    fixed = gg.dynamics.fixed_points(layer, torch.zeros(1), noise(1, 300, 2))
    root = 0.9575040240772687
    expected = torch.cartesian_prod(*[torch.tensor([-root, 0.0, root], dtype=torch.float64)] * 2)
    assert len(fixed) == 9
    assert (fixed.speeds.diff() >= 0).all()  # slowest first
    assert (torch.cdist(expected, fixed.states).amin(1) < 1e-9).all()
    assert int(fixed.stable.sum()) == 4
    assert sorted(fixed.unstable_directions.tolist()) == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    slopes = 2 * (1 - fixed.states.square())
    assert torch.allclose(fixed.eigenvalues.abs(), slopes.sort(1, descending=True).values, rtol=0, atol=1e-9)
    assert torch.allclose(fixed.time_constants, 1 / fixed.eigenvalues.abs().log().abs())
    fixed.plot(gg.dynamics.trajectory(layer, noise(2, 20, 3, 1)).states, tmp_path / "points.svg")
    figure = (tmp_path / "points.svg").read_text()
    assert "stable (4)" in figure
    assert "unstable (5)" in figure


def flip_flops(seed: int, L: int, N: int) -> tuple[Tensor, Tensor]:
    """Three bits. A pulse of +1 or -1 on the channel of a bit sets it until the next pulse."""
    random = torch.Generator().manual_seed(seed)
    pulses = (torch.rand(L, N, 3, generator=random) < 0.15) * (2.0 * torch.randint(2, (L, N, 3), generator=random) - 1)
    pulses[0] = 2.0 * torch.randint(2, (N, 3), generator=random) - 1
    bits, now = [], torch.zeros(N, 3)
    for step in pulses:
        now = torch.where(step == 0, now, step)
        bits.append(now)
    return pulses, torch.stack(bits)


def learn(
    layer: gg.Recurrent, readout: nn.Module, task: Callable[[int], tuple[Tensor, Tensor]], steps: int, rate: float
) -> float:
    """Train on new sequences at each step, with noise on the input. Returns the last loss."""
    weights = [*layer.parameters(), *readout.parameters()]
    optimizer = torch.optim.Adam(weights, rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for k in range(steps):
        inputs, targets = task(k)
        loss = (readout(layer(inputs)[0]) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
    return loss.item()


def test_three_bit_flip_flop_has_eight_stable_corners_with_saddles_between() -> None:
    torch.manual_seed(0)
    layer, readout = gg.RNN(3, 24), nn.Linear(24, 3)

    def task(seed: int) -> tuple[Tensor, Tensor]:
        pulses, bits = flip_flops(seed, 40, 32)
        return pulses + 0.1 * torch.randn_like(pulses), bits

    assert learn(layer, readout, task, 900, 0.005) < 0.1
    visited = gg.dynamics.trajectory(layer, task(0)[0][:, :12]).states[1:].flatten(0, 1)
    pairs = torch.randperm(len(visited), generator=torch.Generator().manual_seed(2))
    starts = torch.cat([visited, (visited + visited[pairs]) / 2])  # saddles are half-way between corners
    fixed = gg.dynamics.fixed_points(layer, torch.zeros(3), starts)
    bits = readout(fixed.states.float()).detach()
    corners, saddles = bits[fixed.stable], bits[fixed.unstable_directions == 1]
    assert len(corners) == len(corners.sign().unique(dim=0)) == 8
    assert (corners.abs() > 0.5).all()
    assert len(saddles) == 12  # one for each edge of the cube: two bits are set, and one is undecided
    assert ((saddles.abs() > 0.5).sum(1) == 2).all()


def test_integrator_has_a_line_of_slow_points() -> None:
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(3)
    inputs = 0.15 * torch.randn(40, 64, 1, generator=random)
    layer, readout = gg.RNN(1, 16), nn.Linear(16, 1)
    assert learn(layer, readout, lambda _: (inputs, inputs.cumsum(0)), 600, 0.005) < 0.01
    visited = gg.dynamics.trajectory(layer, inputs[:, :8]).states[10:].flatten(0, 1)
    fixed = gg.dynamics.fixed_points(layer, torch.zeros(1), visited, slow=1e-4)
    points = torch.cat([fixed.states, fixed.slow.states])
    values = readout(points.float()).detach().flatten()
    assert values.max() - values.min() > 1.0
    centred = points - points.mean(0)
    singular = torch.linalg.svdvals(centred)
    assert singular[0] > 4 * singular[1]  # a line
    eigenvalues = torch.cat([fixed.eigenvalues, fixed.slow.eigenvalues]).abs()
    assert ((eigenvalues[:, 0] - 1).abs() < 0.1).all()  # along the line, states do not move
    assert (eigenvalues[:, 1] < 0.9).all()  # across it, they return to the line


def test_an_lstm_of_two_layers_has_one_stable_point() -> None:
    torch.manual_seed(0)
    layer = gg.LSTM(2, 5, num_layers=2)
    fixed = gg.dynamics.fixed_points(layer, torch.zeros(2), noise(1, 20, 20))
    assert len(fixed) == 1
    assert fixed.stable.all()
    assert fixed.speeds.max() < 1e-20
    _, (h, c) = layer(torch.zeros(400, 1, 2))
    assert torch.allclose(fixed.states[0], torch.cat([h[0], c[0], h[1], c[1]], 1)[0].double(), atol=1e-5)


def test_a_bidirectional_layer_raises_an_error() -> None:
    with pytest.raises(ValueError, match=r"fixed_points: a bidirectional layer .* bidirectional=False"):
        gg.dynamics.fixed_points(gg.LSTM(2, 3, bidirectional=True), torch.zeros(2), torch.zeros(1, 6))
