"""Gated cells whose gates read only the input (Feng et al. 2024), so that the loop over time has no matrix product."""

import torch
from torch import exp, sigmoid

from glassgate.cell import Cell, no_projection


def positive(x):
    """x + 1/2 if x >= 0, else sigmoid(x): continuous, increasing, and never negative."""
    return torch.where(x >= 0, x + 0.5, sigmoid(x))


def fraction(f, i):
    """sigmoid(f) / (sigmoid(f) + sigmoid(i))."""
    # 1 / sigmoid is 1 + exp(-x), which overflows if both gates are nearly closed; only their ratio matters.
    least = torch.where(f < i, f, i)
    shut = least < -40
    shift, one = torch.where(shut, least, 0.0), torch.where(shut, 0.0, 1.0)
    not_f, not_i = exp(shift - f), exp(shift - i)
    return (one + not_i) / (2 * one + not_f + not_i)


class MinGRU(Cell):
    """Feng et al. 2024, arXiv:2410.01201, the form that their log-space scan computes.

    z = sigmoid(...),  n = positive(...),  h = (1 - z) h_prev + z n; the gates read only the input
    """

    gates = ("z", "n")
    state = ("h",)
    recurrent = False
    projected = no_projection

    def step(self, a, s):
        z, n = sigmoid(a.z), positive(a.n)
        return (1 - z) * s.h + z * a.update(n)


class MinLSTM(Cell):
    """Feng et al. 2024, arXiv:2410.01201, with gates that add up to one, the form that their log-space scan computes.

    n = positive(...),  f = s_f / (s_f + s_i) with s = sigmoid(...),  i = 1 - f,  h = f h_prev + i n. The gates read
    only the input.
    """

    gates = ("f", "i", "n")
    state = ("h",)
    recurrent = False
    projected = no_projection

    def step(self, a, s):
        f, n = fraction(a.f, a.i), positive(a.n)
        i = 1 - f
        return f * s.h + i * a.update(n)
