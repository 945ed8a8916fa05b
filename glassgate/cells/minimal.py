"""Gated cells whose gates read only the input (Feng et al. 2024). Their loop over time has no matrix product."""

import torch
from torch import exp, sigmoid

from glassgate.cell import Cell, no_projection


def positive(x):
    """Compute x + 1/2 if x >= 0, else sigmoid(x). The function is continuous, increasing and positive."""
    return torch.where(x >= 0, x + 0.5, sigmoid(x))


def fraction(f, i):
    """Compute sigmoid(f) / (sigmoid(f) + sigmoid(i))."""
    # 1 / sigmoid(x) is 1 + exp(-x), which overflows if a gate is nearly closed. The result is a ratio, so all terms can
    # be multiplied by exp(smallest). The term 1 then becomes negligible, and is replaced by 0.
    smallest = torch.where(f < i, f, i)
    is_shut = smallest < -40
    shift, one = torch.where(is_shut, smallest, 0.0), torch.where(is_shut, 0.0, 1.0)
    not_f, not_i = exp(shift - f), exp(shift - i)
    return (one + not_i) / (2 * one + not_f + not_i)


class MinGRU(Cell):
    """The minGRU (Feng et al. 2024, arXiv:2410.01201), in the form of the paper's log-space scan.

    z = sigmoid(...),  n = positive(...),  h = (1 - z) h_prev + z n, where ... is W_ih x + b_ih, and positive(x) is
    x + 1/2 if x >= 0, else sigmoid(x)
    """

    gates = ("z", "n")
    state = ("h",)
    recurrent = False
    projected = no_projection

    def step(self, a, s):
        z, n = sigmoid(a.z), positive(a.n)
        return (1 - z) * s.h + z * a.update(n)


class MinLSTM(Cell):
    """The minLSTM (Feng et al. 2024, arXiv:2410.01201), in the form of the paper's log-space scan.

    Its two gates add up to one.

    s_f, s_i = sigmoid(...),  f = s_f / (s_f + s_i),  i = 1 - f,  n = positive(...),  h = f h_prev + i n, where ... and
    positive are as in `MinGRU`
    """

    gates = ("f", "i", "n")
    state = ("h",)
    recurrent = False
    projected = no_projection

    def step(self, a, s):
        f, n = fraction(a.f, a.i), positive(a.n)
        i = 1 - f
        return f * s.h + i * a.update(n)
