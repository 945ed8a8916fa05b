"""The cells of the benchmarks by name: built-in cells, and a custom cell."""

from typing import Any

from torch import sigmoid
from torch.nn.functional import silu

import glassgate as gg


class FourGates(gg.Cell):
    """c = f c + (1 - f) i silu(g),  h = o c / (1 + |c|)."""

    gates = ("i", "f", "g", "o")
    state = ("h", "c")

    def step(self, a: Any, s: Any) -> Any:
        i, f, g, o = sigmoid(a.i), sigmoid(a.f), silu(a.g), sigmoid(a.o)
        c = f * s.c + (1 - f) * i * g
        return o * c / (1 + c.abs()), c


HEAD = 64
"""The size of a head, and of its keys, in cells with a matrix memory."""


def cell(name: str, hidden_size: int) -> gg.Cell:
    """Return a cell by name, for a layer of this size."""
    if name in gg.cells.MATRIX_MEMORIES:
        memory: gg.Cell = gg.cells.MATRIX_MEMORIES[name](heads=hidden_size // HEAD, key_size=HEAD)
        return memory
    return FourGates() if name == "FourGates" else getattr(gg.cells, name)()
