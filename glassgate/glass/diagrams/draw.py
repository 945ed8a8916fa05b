"""The diagram of a cell, of a layer, or of a single-step module."""

from glassgate.cell import Cell
from glassgate.conversion import description
from glassgate.glass.diagrams.cell import draw_cell
from glassgate.glass.diagrams.layer import draw_layer
from glassgate.glass.diagrams.svg import Diagram
from glassgate.layers.cells import RecurrentCell
from glassgate.layers.stack import Recurrent


def diagram(drawable: Cell | Recurrent | RecurrentCell, *, projected: bool = False) -> Diagram:
    """Draw the diagram of a cell, a layer or a single-step module, as described in `gg.draw`.

    Raises:
        TypeError: `drawable` is neither a cell nor a layer, or the step uses an operation that no graph can express.
    """
    if isinstance(drawable, Cell):
        return draw_cell(drawable, projected)
    if isinstance(drawable, RecurrentCell):
        return draw_cell(drawable.cell)
    if isinstance(drawable, Recurrent):
        return draw_layer(drawable)
    raise TypeError(f"draw: expected a cell or a layer of glassgate, got {description(drawable)}")
