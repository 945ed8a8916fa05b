"""Initialisation schemes: the values that each scheme sets, gate by gate."""

import math

import pytest
import torch
from torch import nn

import glassgate as gg
from glassgate import init


def by_gate(weight, gates="ifgo"):
    return dict(zip(gates, weight.chunk(len(gates)), strict=True))


@pytest.mark.parametrize("H", [1, 16, 100])
def test_torch_is_uniform_up_to_one_over_the_root_of_h(H):
    layer = gg.LSTM(8, H)
    for weight in layer.parameters():
        assert weight.abs().max() <= H**-0.5
    assert layer.weight_hh_l0.abs().max() > 0.5 * H**-0.5


def test_torch_scheme_uses_the_size_of_each_direction():
    layer = gg.GRU(8, (4, 400), bidirectional=True)
    assert 0.05 < layer.weight_ih_l0.abs().max() <= 0.5
    assert layer.weight_ih_l0_reverse.abs().max() <= 0.05


@pytest.mark.parametrize("options", [{}, {"proj_size": 6}, {"num_layers": 2, "bidirectional": True}])
def test_xavier_orthogonal(options):
    layer = gg.LSTM(7, 9, init=init.xavier_orthogonal, **options)
    out = layer.proj_size or 9
    for ih, hh, b_ih, b_hh, *hr in layer.all_weights:
        assert 0.8 * (bound := (6 / sum(ih.shape)) ** 0.5) < ih.abs().max() <= bound
        for block in hh.chunk(4):
            torch.testing.assert_close(block.T @ block, torch.eye(out), rtol=0, atol=1e-5)
        assert all(0 < w.abs().max() <= (6 / sum(w.shape)) ** 0.5 for w in hr)
        assert (b_ih + b_hh).tolist() == [0.0] * 9 + [1.0] * 9 + [0.0] * 18


def test_xavier_orthogonal_supports_other_cells():
    layer = gg.GRU(3, 4, init=init.xavier_orthogonal)
    assert not layer.bias_ih_l0.any()
    for block in layer.weight_hh_l0.chunk(3):
        torch.testing.assert_close(block @ block.T, torch.eye(4), rtol=0, atol=1e-5)
    assert gg.RNN(3, 4, bias=False, init=init.xavier_orthogonal).weight_hh_l0.det().abs().item() == pytest.approx(1)


def test_chrono():
    layer = gg.LSTM(3, 1000, init=init.chrono(50))
    total = by_gate(layer.bias_ih_l0 + layer.bias_hh_l0)
    u = total["f"].exp()
    assert 1 <= u.min() < 2
    assert 48 < u.max() <= 49
    assert u.mean().item() == pytest.approx(25, rel=0.1)
    assert torch.equal(total["i"], -total["f"])
    assert not total["g"].any()
    assert not total["o"].any()


def test_chrono_of_a_gru_sets_the_bias_of_z():
    total = by_gate(sum(gg.GRU(3, 9, init=init.chrono(50)).all_weights[0][2:]), "rzn")
    assert (total["z"] >= 0).all()
    assert not total["r"].any()
    assert not total["n"].any()


def test_gate_bias_can_follow_another_scheme():
    torch.manual_seed(0)
    plain = gg.LSTM(2, 4)
    torch.manual_seed(0)
    layer = gg.LSTM(2, 4, init=[init.gate_bias(f=3.0), init.gate_bias(i=torch.tensor([-3.0, -4.0, -5.0, -6.0]))])
    ours, theirs = (by_gate(v.bias_ih_l0 + v.bias_hh_l0) for v in (layer, plain))
    assert ours["f"].tolist() == [3.0] * 4
    assert ours["i"].tolist() == [-3.0, -4.0, -5.0, -6.0]
    assert torch.equal(ours["g"], theirs["g"])
    assert torch.equal(ours["o"], theirs["o"])
    assert torch.equal(layer.weight_hh_l0, plain.weight_hh_l0)


@pytest.mark.parametrize("scheme", [init.torch, init.xavier_orthogonal, init.chrono(5), init.gate_bias(f=7.0)])
def test_schemes_fill_all_layers_of_a_model(scheme):
    model = nn.Sequential(nn.Linear(3, 3), nn.ModuleList([gg.LSTM(3, 4, 2), gg.LSTMCell(3, 4)]))
    linear = model[0].weight.clone()
    before = [p.clone() for p in model[1].parameters()]
    scheme(model)
    assert torch.equal(model[0].weight, linear)
    changed = [
        name for (name, p), old in zip(model[1].named_parameters(), before, strict=True) if not torch.equal(p, old)
    ]
    expected = ["0.bias_ih_l0", "0.bias_ih_l1", "1.bias_ih"]
    assert set(expected) <= set(changed)
    assert all(p.requires_grad for p in model.parameters())


def test_reset_parameters_applies_the_scheme_again():
    layer = gg.LSTM(3, 4, init=init.gate_bias(o=2.0))
    with torch.no_grad():
        layer.bias_ih_l0.zero_()
    layer.reset_parameters()
    assert by_gate(layer.bias_ih_l0 + layer.bias_hh_l0)["o"].tolist() == [2.0] * 4


FAULTS = {
    "chrono: T_max must be a finite number above 2, got 2": (ValueError, lambda: init.chrono(2)),
    "long_memory: steps must be a finite number above 2, got inf": (ValueError, lambda: init.long_memory(math.inf)),
    "chrono: the layer must have biases, got bias=False": (
        ValueError,
        lambda: gg.LSTM(3, 4, bias=False, init=init.chrono(9)),
    ),
    "chrono: the cell must have a gate whose bias sets the fraction of a state that a step keeps, got RNN with the "
    "gates h; use a cell such as LSTM or GRU, or the scheme xavier_orthogonal": (
        ValueError,
        lambda: gg.RNN(3, 4, init=init.chrono(9)),
    ),
    "long_memory: the layer must have biases, got bias=False": (
        ValueError,
        lambda: gg.LSTM(3, 4, bias=False, init=init.long_memory(9)),
    ),
    "gate_bias: the layer must have biases, got bias=False": (
        ValueError,
        lambda: gg.GRU(3, 4, bias=False, init=init.gate_bias(z=1.0)),
    ),
    "gate_bias: the cell has the gates r, z, n, got 'f'": (
        ValueError,
        lambda: gg.GRU(3, 4, init=init.gate_bias(f=1.0)),
    ),
    "gate_bias: z must be a number or one per unit, (4,), got (3,)": (
        ValueError,
        lambda: gg.GRU(3, 4, init=init.gate_bias(z=[1.0, 2.0, 3.0])),
    ),
    "GRU: init must be a scheme of glassgate.init, or several, got 'orthogonal'": (
        TypeError,
        lambda: gg.GRU(3, 4, init="orthogonal"),
    ),
    "GRUCell: init must be a scheme of glassgate.init, or several, got None": (
        TypeError,
        lambda: gg.GRUCell(3, 4, init=[init.xavier_orthogonal, None]),
    ),
    "chrono: T_max must be a number of steps, such as in init=chrono(100), got GRU": (
        TypeError,
        lambda: gg.GRU(3, 4, init=init.chrono),
    ),
    "init: the module must be or hold a recurrent layer of glassgate, got Linear": (
        TypeError,
        lambda: init.xavier_orthogonal(nn.Linear(2, 2)),
    ),
}


@pytest.mark.parametrize("message", FAULTS)
def test_wrong_arguments_are_rejected(message):
    kind, call = FAULTS[message]
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == message


def test_an_error_leaves_the_parameters_unchanged():
    layer = gg.RNN(3, 4)
    before = [p.clone() for p in layer.parameters()]
    with pytest.raises(ValueError, match="chrono: the cell must have a gate whose bias"):
        init.chrono(9)(layer)
    with pytest.raises(ValueError, match="gate_bias: the cell has the gates h, got 'f'"):
        init.gate_bias(h=3.0, f=1.0)(layer)
    assert all(torch.equal(p, old) for p, old in zip(layer.parameters(), before, strict=True))
