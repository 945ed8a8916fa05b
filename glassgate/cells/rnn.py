"""The simple recurrent cell (Elman 1990)."""

import torch

from glassgate.cell import Cell


class RNN(Cell):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu (Elman 1990; `torch.nn.RNN`).

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
