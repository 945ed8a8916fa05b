"""`python docs/draw_dynamics.py` draws docs/dynamics.png: the fixed points of a network that stores three bits."""

from pathlib import Path

import torch
from torch import Tensor, nn

import glassgate as gg


def flip_flops(steps: int, rows: int) -> tuple[Tensor, Tensor]:
    """Generate pulses of +1 and -1 on three channels. Returns pulses and each step's last pulse, (L, N, 3) each."""
    pulses = (torch.rand(steps, rows, 3) < 0.1) * (2.0 * torch.randint(2, (steps, rows, 3)) - 1)
    pulses[0] = 2.0 * torch.randint(2, (rows, 3)) - 1
    bits, last_pulse = [], torch.zeros(rows, 3)
    for pulse in pulses:
        last_pulse = torch.where(pulse == 0, last_pulse, pulse)
        bits.append(last_pulse)
    return pulses, torch.stack(bits)


def train_memory() -> tuple[gg.RNN, nn.Linear]:
    """Train a network that stores three bits, with a fixed seed. Returns the layer and its linear output layer."""
    torch.manual_seed(0)
    layer, readout = gg.RNN(3, 24), nn.Linear(24, 3)
    weights = [*layer.parameters(), *readout.parameters()]
    optimizer = torch.optim.Adam(weights, 0.005)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 900)
    for _ in range(900):
        pulses, bits = flip_flops(40, 32)
        output, _ = layer(pulses + 0.1 * torch.randn_like(pulses))
        loss = (readout(output) - bits).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
    return layer, readout


def main() -> None:
    """Train the network, find its fixed points, and draw them."""
    layer, _ = train_memory()
    states = gg.dynamics.trajectory(layer, flip_flops(40, 24)[0]).states[1:]
    visited = states.flatten(0, 1)
    midpoints = (visited + visited[torch.randperm(len(visited))]) / 2
    found = gg.dynamics.fixed_points(layer, torch.zeros(3), torch.cat([visited, midpoints]))
    print(found, "unstable directions:", found.unstable_directions.bincount().tolist())
    found.plot(states, Path(__file__).with_name("dynamics.png"))


if __name__ == "__main__":
    main()
