"""LSTMs with other connections: multiplicative, residual, with clocks, and with weights from a second LSTM.

In the equations, `...` is the pre-activation of the gate, W_ih x + b_ih + W_hh h_prev + b_hh. W_x x is W_ih x + b_ih
alone, and W_h h is W_hh h + b_hh alone. Each gate has its own rows of these matrices.
"""

from functools import partial
from math import log

import torch
from torch import einsum, sigmoid, tanh

from glassgate.cell import Cell, no_projection
from glassgate.cell_axes import Parameter
from glassgate.cells.classic import ClassicCell
from glassgate.cells.layer_norm import normalised

UNITS = ("units",)


class MultiplicativeLSTM(ClassicCell):
    """The multiplicative LSTM (Krause et al. 2016, arXiv:1609.07959): the input changes the recurrent weights.

    m = (W_x x) (W_h h_prev),  i, f, o = sigmoid(W_x x + W_h m),  g = tanh(W_x x + W_h m),
    c = f c_prev + i g,  h = o tanh(c)
    """

    gates = ("m", "i", "f", "g", "o")
    state = ("h", "c")

    def step(self, a, s):
        hh = a.hh(a.ih.m * a.hh.m)
        i, f, o = sigmoid(a.ih.i + hh.i), sigmoid(a.ih.f + hh.f), sigmoid(a.ih.o + hh.o)
        c = f * s.c + i * a.update(tanh(a.ih.g + hh.g))
        return o * tanh(c), c


class ResidualLSTM(ClassicCell):
    """The residual LSTM (Kim, El-Khamy and Lee 2017, arXiv:1701.03360): the output contains the input.

    i = sigmoid(... + w_i c_prev),  f = sigmoid(... + w_f c_prev),  g = tanh(...),  c = f c_prev + i g,
    o = sigmoid(... + w_o c),  h = o (W_h tanh(c) + W_x x), with one number w_i, w_f and w_o per unit

    If the input has the hidden size, the paper has x for W_x x. It is the special case W_x = 1.
    """

    gates = ("i", "f", "g", "o", "k")
    state = ("h", "c")
    parameters = {"w_i": Parameter(), "w_f": Parameter(), "w_o": Parameter()}

    def step(self, a, s, p):
        i, f = sigmoid(a.i + p.w_i * s.c), sigmoid(a.f + p.w_f * s.c)
        c = f * s.c + i * a.update(tanh(a.g))
        o = sigmoid(a.o + p.w_o * c)
        return o * (a.hh(tanh(c)).k + a.ih.k), c


def draw_clock(p, shortest, longest):
    """Fill periods, shifts and open fractions."""
    periods = torch.empty_like(p[0]).uniform_(log(shortest), log(longest)).exp()
    p.copy_(torch.stack([periods, periods * torch.rand_like(periods), torch.full_like(periods, 0.05)]))


class PhasedLSTM(Cell):
    """The phased LSTM (Neil, Pfeiffer and Liu 2016, arXiv:1610.09513): each unit has a clock that opens and closes it.

    The last input is the time.

    u = (time - shift) / period,  v = u - floor(u),  k = 2 v / r if v < r / 2, 2 - 2 v / r if v < r, else leak v,
    i = sigmoid(... + w_i c_prev),  f = sigmoid(... + w_f c_prev),  g = tanh(...),  d = f c_prev + i g,
    o = sigmoid(... + w_o d),  c = k d + (1 - k) c_prev,  h = k o tanh(d) + (1 - k) h_prev

    `clock` contains period, shift and r, w_i, w_f and w_o are parameters, all with one number per unit. x is the input
    without the time. Which memory o reads is open in the paper; it is d as in the authors' code.

    Args:
        shortest, longest: the range of the periods at the start, on a logarithmic scale.
        leak: the slope of closed units. The paper sets it to 0 after training.
    """

    inputs = {"x": ("features",), "time": ()}
    gates = {"i": UNITS, "f": UNITS, "g": UNITS, "o": UNITS}
    state = {"h": UNITS, "c": UNITS}
    projected = no_projection

    def __init__(self, shortest: float = 1.0, longest: float = 1000.0, leak: float = 0.001) -> None:
        self.shortest, self.longest, self.leak = shortest, longest, leak
        clock = partial(draw_clock, shortest=shortest, longest=longest)
        self.parameters = {
            "clock": Parameter(clock, axes=(3, "units")),
            **{name: Parameter() for name in ("w_i", "w_f", "w_o")},
        }

    def step(self, a, s, p):
        period, shift, r = p.clock[0], p.clock[1], p.clock[2]
        u = (a.input.time[:, None] - shift) / period
        v = u - torch.floor(u)
        k = torch.where(v < r / 2, 2 * v / r, torch.where(v < r, 2 - 2 * v / r, self.leak * v))
        i, f = sigmoid(a.i + p.w_i * s.c), sigmoid(a.f + p.w_f * s.c)
        d = f * s.c + i * a.update(tanh(a.g))
        o = sigmoid(a.o + p.w_o * d)
        return k * o * tanh(d) + (1 - k) * s.h, k * d + (1 - k) * s.c


class HyperLSTM(Cell):
    """The HyperLSTM (Ha, Dai and Le 2016, arXiv:1609.09106, appendix A.2.2): a small LSTM scales another.

    The small LSTM has the states m and n:
    a = LN(... + R m_prev) for each of its four gates,  n = sigmoid(a_f) n_prev + sigmoid(a_i) tanh(a_g),
    m = sigmoid(a_o) tanh(LN(n)), and the large one, for each of its four gates,
    z_h = Z_h m_prev + y_h,  z_x = Z_x m_prev + y_x,  z_b = Z_b m_prev,
    a = LN((D_h z_h) (W_h h_prev) + (D_x z_x) (W_x x) + D_b z_b + b),  c = sigmoid(a_f) c_prev + sigmoid(a_i) tanh(a_g),
    h = sigmoid(a_o) tanh(LN(c)). The order of the gates is i, f, g, o.

    Z and D contain the blocks for h, x and b. Each LN has a gain and a shift. The paper has no biases in W_h h and
    W_x x: create the layer with `bias=False`, where the shifts are the biases of the small LSTM. The released code of
    the authors has m for m_prev in z.

    Args:
        hyper: the number of units of the small LSTM.
        embedding: the size of each z.
        eps: added to the variances.
    """

    gates = {"large": (4, "units"), "small": (4, "hyper")}
    state = {"h": UNITS, "c": UNITS, "m": ("hyper",), "n": ("hyper",)}
    parameters = {
        "R": Parameter(axes=(4, "hyper", "hyper")),
        "Z": Parameter(axes=(3, 4, "embedding", "hyper")),
        "y": Parameter(1.0, axes=(2, 4, "embedding")),
        "D": Parameter(lambda p: p.fill_(0.1 / p.shape[-1]), axes=(3, 4, "units", "embedding")),
        "b": Parameter(0.0, axes=(4, "units")),
        "gain": Parameter(1.0, axes=(5, "units")),
        "shift": Parameter(0.0, axes=(5, "units")),
        "small_gain": Parameter(1.0, axes=(5, "hyper")),
        "small_shift": Parameter(0.0, axes=(5, "hyper")),
    }
    projected = no_projection

    def __init__(self, hyper: int = 32, embedding: int = 8, eps: float = 1e-5) -> None:
        self.hyper, self.embedding, self.eps = hyper, embedding, eps

    def lstm(self, a, c, gain, shift, update):
        """Compute one step of an LSTM with layer normalisation, from the pre-activations (N, 4, units)."""
        a = normalised(self.eps, a)[0] * gain[:4] + shift[:4]
        c = sigmoid(a[:, 1]) * c + sigmoid(a[:, 0]) * update(tanh(a[:, 2]))
        return sigmoid(a[:, 3]) * tanh(normalised(self.eps, c)[0] * gain[4] + shift[4]), c

    def step(self, a, s, p):
        z = einsum("nj,wgej->nwge", s.m, p.Z)
        d_h, d_x = (einsum("nge,gue->ngu", z[:, w] + p.y[w], p.D[w]) for w in (0, 1))
        large = d_h * a.hh.large + d_x * a.ih.large + einsum("nge,gue->ngu", z[:, 2], p.D[2]) + p.b
        h, c = self.lstm(large, s.c, p.gain, p.shift, a.update)
        small = a.small + einsum("nj,gkj->ngk", s.m, p.R)
        m, n = self.lstm(small, s.n, p.small_gain, p.small_shift, lambda v: v)
        return h, c, m, n
