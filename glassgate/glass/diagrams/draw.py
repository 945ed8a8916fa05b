"""`gg.draw`: the diagram of a cell or a layer."""

from glassgate.cell import Cell
from glassgate.glass.diagrams.cell import draw_cell
from glassgate.glass.diagrams.layer import draw_layer
from glassgate.glass.diagrams.svg import Diagram
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
        the picture: a notebook shows it, `str` gives the SVG, `save(path)` writes it.

    Raises:
        TypeError: it is neither, or the step uses what cannot be expressed as a graph; the message names it.

    Example:
        >>> import glassgate as gg
        >>> picture = gg.draw(gg.cells.LSTM())
        >>> "c = f * c_prev + i * g" in str(picture)
        True
    """
    if isinstance(what, Cell):
        return draw_cell(what, projected)
    if isinstance(what, RecurrentCell):
        return draw_cell(what.cell)
    if isinstance(what, Recurrent):
        return draw_layer(what)
    raise TypeError(f"draw: expected a cell or a layer of glassgate, got {type(what).__name__}")
