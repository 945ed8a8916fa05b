"""Cells by name, and the largest hidden size for a maximum number of parameters."""

import math

import glassgate as gg
from glassgate.tasks import cells
from glassgate.tasks.errors import UserError


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
        UserError: a layer of one unit per head has more parameters
    """
    units = 0
    while _count(cell, features, units + cell.heads) <= parameters:
        units += cell.heads
    if units == 0:
        needed = _count(cell, features, cell.heads)
        raise UserError(
            f"--parameters must be {needed} or more for one unit of {type(cell).__name__}, got {parameters}"
        )
    return units


def _count(cell: gg.Cell, features: int, units: int) -> int:
    return sum(math.prod(shape) for shape in cell.shapes(features, units).values())
