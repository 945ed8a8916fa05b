"""Cells with layer normalisation (Ba, Kiros and Hinton 2016)."""

import torch
from torch import sigmoid, tanh

from glassgate.cell import Cell, Parameter, no_projection


def normalised(eps, *values):
    """Normalise values to mean 0 and variance 1, over the units of all values together."""

    def mean(values):
        return sum(values).mean(-1, keepdim=True) / len(values)

    # E[v^2] - E[v]^2 loses digits if the mean is large. Therefore the mean is subtracted first. Because of rounding, a
    # small mean remains. The result does not depend on `shift`, so `shift` needs no gradient.
    shift = mean(values).detach()
    centred = [v - shift for v in values]
    remaining_mean, mean_square = mean(centred), mean([v * v for v in centred])
    scale = torch.rsqrt(torch.clamp(mean_square - remaining_mean * remaining_mean, min=0.0) + eps)
    return [(v - remaining_mean) * scale for v in centred]


class LayerNormLSTM(Cell):
    """An LSTM with layer normalisation (Ba, Kiros and Hinton 2016, arXiv:1607.06450, equations 20 to 22).

    a = LN(W_ih x + b_ih) + LN(W_hh h_prev + b_hh), where each LN normalises all gates together,
    i, f, o = sigmoid(a),  g = tanh(a),  c = f c_prev + i g,  h = o tanh(LN(c))

    Each LN has a gain and a shift. With `bias=False`, the shifts replace the bias b of the paper.

    Args:
        eps: added to the variance.
    """

    gates = ("i", "f", "g", "o")
    state = ("h", "c")
    parameters = {
        "gain_ih": Parameter(1.0, per_gate=True),
        "shift_ih": Parameter(0.0, per_gate=True),
        "gain_hh": Parameter(1.0, per_gate=True),
        "shift_hh": Parameter(0.0, per_gate=True),
        "gain_c": Parameter(1.0),
        "shift_c": Parameter(0.0),
    }

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = eps

    def step(self, a, s, p):
        ih = normalised(self.eps, a.ih.i, a.ih.f, a.ih.g, a.ih.o)
        hh = normalised(self.eps, a.hh.i, a.hh.f, a.hh.g, a.hh.o)
        input_terms = [v * gain + shift for v, gain, shift in zip(ih, p.gain_ih, p.shift_ih, strict=True)]
        state_terms = [v * gain + shift for v, gain, shift in zip(hh, p.gain_hh, p.shift_hh, strict=True)]
        i, f, g, o = (x + h for x, h in zip(input_terms, state_terms, strict=True))
        i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
        c = f * s.c + i * a.update(g)
        (c_hat,) = normalised(self.eps, c)
        return o * tanh(c_hat * p.gain_c + p.shift_c), c


class LayerNormGRU(Cell):
    """A GRU with layer normalisation (Ba, Kiros and Hinton 2016, arXiv:1607.06450, supplement).

    r, z = sigmoid(LN(W_ih x + b_ih) + LN(W_hh h_prev + b_hh)), where each LN normalises both gates together,
    n = tanh(LN(W_in x + b_in) + r LN(W_hn h_prev + b_hn)),  h = (1 - z) n + z h_prev

    As in `torch.nn.GRU`, z is the weight of the old state.

    Args:
        eps: added to the variance.
    """

    gates = ("r", "z", "n")
    state = ("h",)
    parameters = {
        "gain_ih": Parameter(1.0, per_gate=True),
        "shift_ih": Parameter(0.0, per_gate=True),
        "gain_hh": Parameter(1.0, per_gate=True),
        "shift_hh": Parameter(0.0, per_gate=True),
    }
    projected = no_projection

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = eps

    def step(self, a, s, p):
        ih = [*normalised(self.eps, a.ih.r, a.ih.z), *normalised(self.eps, a.ih.n)]
        hh = [*normalised(self.eps, a.hh.r, a.hh.z), *normalised(self.eps, a.hh.n)]
        x_r, x_z, x_n = (v * gain + shift for v, gain, shift in zip(ih, p.gain_ih, p.shift_ih, strict=True))
        h_r, h_z, h_n = (v * gain + shift for v, gain, shift in zip(hh, p.gain_hh, p.shift_hh, strict=True))
        r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
        n = tanh(x_n + r * h_n)
        return (1 - z) * a.update(n) + z * s.h
