"""Gated cells whose gates see the input alone (Feng et al. 2024), so that no product is left in the loop over time."""

import torch
from torch import exp, sigmoid

from glassgate.cell import Cell, units_stay


def positive(x):
    """x + 1/2 from zero on, else sigmoid(x): continuous, increasing, and never negative."""
    return torch.where(x >= 0, x + 0.5, sigmoid(x))


def fraction(f, i):
    """sigmoid(f) / (sigmoid(f) + sigmoid(i))."""
    # 1 / sigmoid is 1 + exp(-x); where both are all but shut that overflows, and only the ratio of the two counts.
    least = torch.where(f < i, f, i)
    shut = least < -40
    shift, one = torch.where(shut, least, 0.0), torch.where(shut, 0.0, 1.0)
    not_f, not_i = exp(shift - f), exp(shift - i)
    return (one + not_i) / (2 * one + not_f + not_i)


class MinGRU(Cell):
    """Feng et al. 2024, arXiv:2410.01201, the form that their log-space scan computes.

    z = sigmoid(...),  n = positive(...),  h = (1 - z) h + z n, all from the input alone
    """

    gates = ("z", "n")
    state = ("h",)
    recurrent = False
    projected = units_stay

    def step(self, a, s):
        z, n = sigmoid(a.z), positive(a.n)
        return (1 - z) * s.h + z * a.update(n)


class MinLSTM(Cell):
    """Feng et al. 2024, arXiv:2410.01201, with gates that add up to one, the form that their log-space scan computes.

    n = positive(...),  h = f h + i n,  f = s_f / (s_f + s_i),  i = 1 - f,  s = sigmoid(...), all from the input alone
    """

    gates = ("f", "i", "n")
    state = ("h",)
    recurrent = False
    projected = units_stay

    def step(self, a, s):
        f, n = fraction(a.f, a.i), positive(a.n)
        i = 1 - f
        return f * s.h + i * a.update(n)
