"""Lyapunov exponents over a training: closed forms for linear cells."""

import math

import pytest
import torch
from torch import nn

import glassgate as gg
from glassgate.tasks.training.exponents import Exponents
from tests.compare import noise


class Linear(gg.Cell):
    gates, state = ("n",), ("h",)

    def step(self, a, s):
        return a.n


class Network(nn.Module):
    """Two layers in two directions, whose states shrink by a factor of their own at each step."""

    factors = (0.5, 0.25, 0.8, 0.9)

    def __init__(self, merge: str) -> None:
        super().__init__()
        self.encoder = gg.Recurrent(Linear(), 3, 2, 2, batch_first=True, bidirectional=True, merge=merge)
        for factor, (_, weights) in zip(self.factors, self.encoder.weights(), strict=True):
            weights["weight_hh"].data.copy_(factor * torch.eye(2))


@pytest.mark.parametrize("merge", ["concat", "sum", "none"])
def test_each_direction_has_the_logarithm_of_its_factor(merge: str) -> None:
    network = Network(merge)
    exponents = Exponents(network, 12)
    with exponents.inputs():
        network.encoder(noise(1, 3, 4, 3).float())
        network.encoder(noise(2, 3, 20, 3).float(), lengths=[20, 2, 11])
    wanted = {
        f"lyapunov/layer{depth}.{way}": pytest.approx(math.log(network.factors[2 * depth + k]), abs=1e-6)
        for depth in range(2)
        for k, way in enumerate(("forward", "reverse"))
    }
    assert exponents.values() == wanted
    assert exponents.values() == {}  # inputs are used once


def test_they_depend_on_the_longest_sequences_only() -> None:
    layer, rows = gg.GRU(3, 4, batch_first=True), noise(3, 3, 30, 3).float()
    exponents = Exponents(nn.ModuleDict({"encoder": layer}), 25)
    with exponents.inputs():
        layer(rows, lengths=torch.tensor([30, 7, 25]))
        layer(rows[:, :9])
    found = exponents.values()["lyapunov/layer0.forward"]
    alone = gg.GRU(3, 4)
    alone.load_state_dict(layer.state_dict())
    steps = rows[[0, 2], :25].transpose(0, 1)
    assert found == pytest.approx(float(gg.dynamics.lyapunov(alone, steps, warm_up=5).exponents[0]), abs=1e-9)
