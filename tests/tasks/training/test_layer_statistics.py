"""The logged statistics equal those computed from the parameters and gates of the layer."""

import pytest
import torch
from torch import nn

import glassgate as gg
from glassgate.tasks.training.layer_statistics import LayerStatistics


class Network(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.encoder = gg.LSTM(3, 4, batch_first=batch_first)


@pytest.mark.parametrize("batch_first", [True, False])
def test_gradient_norm_forget_bias_and_saturation(batch_first: bool) -> None:
    network = Network(batch_first)
    statistics, layer = LayerStatistics(network), network.encoder
    with torch.no_grad():
        layer.bias_ih_l0.view(4, 4)[1] = 20.0  # the forget gate is open in every step
        layer.bias_hh_l0.view(4, 4)[1] = 1.0
    with statistics.store_inputs():
        layer(torch.randn(2, 5, 3))[0].sum().backward()
    norm = torch.stack([each.grad.square().sum() for each in layer.parameters()]).sum().sqrt()
    assert statistics.gradient_norms() == {"gradient_norm/layer0.forward": pytest.approx(float(norm), rel=1e-5)}
    assert statistics.values() == {"forget_bias/layer0.forward": 21.0, "saturation/layer0.forward": 1.0}
    assert statistics.values() == {"forget_bias/layer0.forward": 21.0}  # inputs are used once


@pytest.mark.parametrize(
    ("cell", "parameter", "number", "sign"),
    [
        (gg.cells.MGU(), "bias_ih_l0", 0, -1),
        (gg.cells.MinGRU(), "bias_ih_l0", 0, -1),
        (gg.cells.GRU(), "bias_ih_l0", 1, 1),
        (gg.cells.LayerNormLSTM(), "shift_ih_l0", 1, 1),
    ],
)
def test_the_forget_bias_is_positive_if_it_keeps_the_state(
    cell: gg.Cell, parameter: str, number: int, sign: int
) -> None:
    network = nn.Sequential(gg.Recurrent(cell, 3, 4))
    for each in network[0].parameters():
        nn.init.zeros_(each)
    with torch.no_grad():
        network[0].get_parameter(parameter).view(-1, 4)[number] = sign * 5.0
    statistics = LayerStatistics(network)
    with statistics.store_inputs():
        network(torch.randn(2, 5, 3))
    assert statistics.values() == {"forget_bias/0.layer0.forward": 5.0, "saturation/0.layer0.forward": 1.0}


def test_a_cell_without_a_keeping_gate_has_no_forget_bias() -> None:
    statistics = LayerStatistics(nn.Sequential(gg.RNN(3, 4)))
    assert statistics.values() == {}
