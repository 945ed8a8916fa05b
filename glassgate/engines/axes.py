"""Axes: the dimensions of the values in a cell's graph and in a lowered pass."""

from typing import NamedTuple


class Axis(NamedTuple):
    """A dimension of values, by name.

    Attributes:
        name: "T" steps, "N" sequences, "G" gates, "H" units, "P" projected units, "D" input width, and others.
        of: the factors of its extent: numbers and other axes. Empty for a base axis, whose extent the caller passes.
        labels: a name for each index, e.g. the names of gates.
    """

    name: str
    of: tuple[int | str, ...] = ()
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


FEATURES = Axis("D")
"""The input."""
UNITS = Axis("H")
"""One value per unit of the cell."""
PROJECTED = Axis("P")
"""One value per unit of a projected output."""
PER_ROW = Axis("1", (1,))
"""One value per row."""
