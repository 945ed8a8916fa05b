"""The diagram of a cell, of a layer, or of a single-step module."""

from glassgate.cell import Cell
from glassgate.conversion import description
from glassgate.glass.diagrams.cell import draw_cell
from glassgate.glass.diagrams.layer import draw_layer
from glassgate.glass.diagrams.svg import Diagram
from glassgate.layers.cells import RecurrentCell
from glassgate.layers.stack import Recurrent


def diagram(what: Cell | Recurrent | RecurrentCell, *, projected: bool = False) -> Diagram:
    """The diagram; see `gg.draw`.

    Raises:
        TypeError: `what` is neither a cell nor a layer, or the step uses an operation that no graph can express.
    """
    if isinstance(what, Cell):
        return draw_cell(what, projected)
    if isinstance(what, RecurrentCell):
        return draw_cell(what.cell)
    if isinstance(what, Recurrent):
        return draw_layer(what)
    raise TypeError(f"draw: expected a cell or a layer of glassgate, got {description(what)}")
