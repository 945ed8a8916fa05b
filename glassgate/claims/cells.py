"""Cells by name, and the largest hidden size for a maximum number of parameters."""

import math

import glassgate as gg
from glassgate.tasks import cells
from glassgate.tasks.errors import UserError

LARGEST_MULTIPLE = 4096
"""The largest number tried as the hidden size of the smallest layer."""


def cell_of(name: str) -> gg.Cell:
    """Return the cell of the option `cell` of tasks: a name with or without arguments, or `FILE.py:Class`.

    The file is executed.

    Raises:
        OptionError: the cell or the file does not exist, or the file does not define the cell
    """
    value = cells.check(name)
    return cells.from_file(name) if cells.is_in_file(value) else cells.build_cell(value)


def hidden_size(cell: gg.Cell, features: int, parameters: int) -> int:
    """Return the largest number of units for which a layer has at most this many parameters.

    Raises:
        UserError: the smallest layer has more parameters, or the cell has no sizes
    """
    smallest = _smallest_size(cell, features)
    units = 0
    while _count(cell, features, units + smallest) <= parameters:
        units += smallest
    if units == 0:
        needed = _count(cell, features, smallest)
        raise UserError(
            f"--parameters must be {needed} or more for the smallest layer of {type(cell).__name__}, got {parameters}"
        )
    return units


def _smallest_size(cell: gg.Cell, features: int) -> int:
    """Return the smallest hidden size, of which the others are multiples: the units of its heads, or of its axes."""
    for units in range(cell.heads, LARGEST_MULTIPLE + 1, cell.heads):
        try:
            _count(cell, features, units)
            return units
        except ValueError as error:
            reason = error
    raise UserError(str(reason))


def _count(cell: gg.Cell, features: int, units: int) -> int:
    return sum(math.prod(shape) for shape in cell.shapes(features, units).values())
