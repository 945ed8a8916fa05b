"""Lyapunov exponents that a training logs equal closed forms for linear cells."""

import math

import pytest
import torch
from torch import nn

import glassgate as gg
from glassgate.tasks.training.layer_statistics import Exponents
from tests.compare import noise


class Linear(gg.Cell):
    gates, state = ("n",), ("h",)

    def step(self, a, s):
        return a.n


class Network(nn.Module):
    """Two layers of two directions; each direction has its own factor by which states shrink at each step."""

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
    with exponents.store_inputs():
        network.encoder(noise(1, 3, 4, 3).float())
        network.encoder(noise(2, 3, 20, 3).float(), lengths=[20, 2, 11])
    wanted = {
        f"lyapunov/layer{depth}.{way}": pytest.approx(math.log(network.factors[2 * depth + k]), abs=1e-6)
        for depth in range(2)
        for k, way in enumerate(("forward", "reverse"))
    }
    assert exponents.values() == wanted
    assert exponents.values() == {}  # inputs are used once


@pytest.mark.parametrize("form", ["unbatched", "steps first", "packed"])
def test_every_form_of_input_has_the_same_exponents(form: str) -> None:
    rows = noise(4, 1, 12, 3).float()
    layer = gg.GRU(3, 4, batch_first=form != "steps first")
    exponents = Exponents(nn.ModuleDict({"decoder": layer}), 12)
    with exponents.store_inputs():
        if form == "packed":
            layer(nn.utils.rnn.pack_padded_sequence(rows, [12], batch_first=True))
        else:
            layer(input=rows[0] if form == "unbatched" else rows.transpose(0, 1))
    wanted = gg.dynamics.lyapunov(layer, rows.transpose(0, 1), warm_up=2).exponents[0]
    assert exponents.values() == {"lyapunov/decoder.layer0.forward": pytest.approx(float(wanted), abs=1e-9)}


def test_sequences_without_steps_have_no_exponents() -> None:
    layer = gg.GRU(3, 4, batch_first=True)
    exponents = Exponents(nn.ModuleDict({"encoder": layer}), 12)
    with exponents.store_inputs():
        layer(torch.zeros(2, 3, 3), lengths=[0, 0])
    assert exponents.values() == {}


def test_exponents_depend_only_on_the_longest_sequences() -> None:
    layer, rows = gg.GRU(3, 4, batch_first=True), noise(3, 3, 30, 3).float()
    exponents = Exponents(nn.ModuleDict({"encoder": layer}), 25)
    with exponents.store_inputs():
        layer(rows, lengths=torch.tensor([30, 7, 25]))
        layer(rows[:, :9])
    exponent = exponents.values()["lyapunov/layer0.forward"]
    alone = gg.GRU(3, 4)
    alone.load_state_dict(layer.state_dict())
    steps = rows[[0, 2], :25].transpose(0, 1)
    assert exponent == pytest.approx(float(gg.dynamics.lyapunov(alone, steps, warm_up=5).exponents[0]), abs=1e-9)
