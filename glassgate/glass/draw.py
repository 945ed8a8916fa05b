"""`gg.draw`: the diagram of a cell or a layer; that of a cell can become an interactive page."""

from glassgate.cell import Cell
from glassgate.glass.diagrams.draw import diagram
from glassgate.glass.diagrams.svg import Diagram
from glassgate.glass.live.cell import CellDiagram
from glassgate.layers.cells import RecurrentCell
from glassgate.layers.stack import Recurrent


def draw(what: Cell | Recurrent | RecurrentCell, *, projected: bool = False) -> Diagram:
    """The diagram of a cell, drawn from its `step`, or of a layer.

    Args:
        what: a cell, such as `gg.cells.LSTM()`, for one step: states run from left to right, gates are boxes with their
            activations, operations circles, functions of the author's own boxes with their names. A layer for its
            depth, directions and sizes; a single-step module such as `gg.LSTMCell` for its cell.
        projected: for a cell, whether its output goes through `weight_hr`.

    Returns:
        the picture: a notebook shows it, `str` gives the SVG, `save(path)` writes it. The picture of a cell has
        `live()`, an interactive page.

    Raises:
        TypeError: it is neither, or the step uses what cannot be expressed as a graph; the message names it.

    Example:
        >>> import glassgate as gg
        >>> picture = gg.draw(gg.cells.LSTM())
        >>> "c = f * c_prev + i * g" in str(picture)
        True
    """
    drawn = diagram(what, projected=projected)
    if isinstance(what, Recurrent):
        return drawn
    return CellDiagram(drawn, what if isinstance(what, Cell) else what.cell)
