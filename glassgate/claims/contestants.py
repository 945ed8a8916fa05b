"""The cells that are compared, each with as many units as a number of parameters allows."""

import glassgate as gg
from glassgate.tasks import cells
from glassgate.tasks.errors import UserError


def cell_of(name: str) -> gg.Cell:
    """Return the cell of a name of `glassgate.cells`, or of `FILE.py:Class`, whose file is executed.

    Raises:
        OptionError: no such cell, no such file, or the file does not define a cell
    """
    value = cells.checked(name)
    return cells.build_cell(value) if value in cells.CELLS else cells.from_file(name)


def hidden_size(cell: gg.Cell, features: int, parameters: int) -> int:
    """The most units with which one layer of the cell has no more than so many parameters.

    Raises:
        UserError: not even one unit fits
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
    total = 0
    for shape in cell.shapes(features, units).values():
        product = 1
        for extent in shape:
            product *= extent
        total += product
    return total
