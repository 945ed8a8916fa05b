"""Cells without gates: the simple recurrent network (Elman 1990) and IndRNN, whose units are independent."""

import torch

from glassgate.cell import Cell, Parameter, no_projection


class RNN(Cell):
    """The simple recurrent network of `torch.nn.RNN` (Elman 1990).

    h = tanh(W_ih x + b_ih + W_hh h_prev + b_hh), or relu instead of tanh

    Args:
        nonlinearity: "tanh" or "relu".
    """

    gates = ("h",)
    state = ("h",)

    def __init__(self, nonlinearity: str = "tanh") -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        self.nonlinearity = nonlinearity

    def step(self, a, s):
        h = torch.tanh(a.h) if self.nonlinearity == "tanh" else torch.relu(a.h)
        return a.update(h)


class IndRNN(Cell):
    """The independently recurrent network (Li et al. 2018, arXiv:1803.04831): each unit reads only its own state.

    h = relu(W_ih x + b_ih + u h_prev), with one number u per unit, or tanh instead of relu

    Args:
        nonlinearity: "relu" or "tanh".
    """

    gates = ("h",)
    state = ("h",)
    parameters = {"u": Parameter(1.0)}
    recurrent = False
    projected = no_projection

    def __init__(self, nonlinearity: str = "relu") -> None:
        if nonlinearity not in ("relu", "tanh"):
            raise ValueError(f"IndRNN: nonlinearity must be 'relu' or 'tanh', got {nonlinearity!r}")
        self.nonlinearity = nonlinearity

    def step(self, a, s, p):
        before = a.h + p.u * s.h
        return a.update(torch.relu(before) if self.nonlinearity == "relu" else torch.tanh(before))
