"""The cells of the benchmarks by name: built-in cells, and a custom cell."""

from torch import sigmoid
from torch.nn.functional import silu

import glassgate as gg


class FourGates(gg.Cell):
    """c = f c + (1 - f) i silu(g),  h = o c / (1 + |c|)."""

    gates = ("i", "f", "g", "o")
    state = ("h", "c")

    def step(self, a, s):
        i, f, g, o = sigmoid(a.i), sigmoid(a.f), silu(a.g), sigmoid(a.o)
        c = f * s.c + (1 - f) * i * g
        return o * c / (1 + c.abs()), c


def cell(name: str) -> gg.Cell:
    """Return a cell by name."""
    return FourGates() if name == "FourGates" else getattr(gg.cells, name)()
