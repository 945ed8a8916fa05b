"""Axes: the dimensions of the values in a cell's graph and in a lowered pass."""

from typing import NamedTuple


class Axis(NamedTuple):
    """A named dimension of values.

    Attributes:
        name: "T" steps, "N" sequences, "G" gates, "H" units, "P" projected units, "D" input features, and others.
        factors: numbers and names of axes. The product of their values is the extent of this axis. Empty for a base
            axis, whose extent the caller passes.
        labels: a name for each index, e.g. the names of gates.
    """

    name: str
    factors: tuple[int | str, ...] = ()
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


FEATURES = Axis("D")
"""The features of the input."""
UNITS = Axis("H")
"""One value per unit of the cell."""
PROJECTED = Axis("P")
"""One value per unit of a projected output."""
PER_ROW = Axis("1", (1,))
"""One value per row (a step of a sequence), the same for all units."""
