"""`gg.draw` draws the diagram of a cell or a layer. For a cell, it can also make an interactive page."""

from glassgate.cell import Cell
from glassgate.conversion import description
from glassgate.glass.diagrams.cell import draw_cell
from glassgate.glass.diagrams.layer import draw_layer
from glassgate.glass.diagrams.svg import Diagram
from glassgate.glass.live.cell import CellDiagram
from glassgate.layers.cells import RecurrentCell
from glassgate.layers.stack import Recurrent


def draw(drawable: Cell | Recurrent | RecurrentCell, *, projected: bool = False) -> Diagram:
    """The diagram of a cell, drawn from its `step`, or of a layer.

    Args:
        drawable: a cell, such as `gg.cells.LSTM()`, or a layer. The diagram of a cell shows one step: states run from
            left to right, gates are boxes with their activations, operations are circles, and functions that the cell's
            author wrote are boxes with their names. The diagram of a layer shows its depth, directions and sizes. The
            diagram of a single-step module, such as `gg.LSTMCell`, is that of its cell.
        projected: for a cell, whether the output is projected by `weight_hr`.

    Returns:
        The diagram. A notebook shows it, `str` returns the SVG, and `save(path)` writes it. For a cell, `live()`
        returns an interactive page.

    Raises:
        TypeError: `drawable` is neither a cell nor a layer, or the step uses an operation that no diagram can show. The
            message names the operation.

    Example:
        >>> import glassgate as gg
        >>> picture = gg.draw(gg.cells.LSTM())
        >>> "c = f * c_prev + i * g" in str(picture)
        True
    """
    if isinstance(drawable, Recurrent):
        return draw_layer(drawable)
    cell = drawable.cell if isinstance(drawable, RecurrentCell) else drawable
    if not isinstance(cell, Cell):
        raise TypeError(f"draw: expected a cell or a layer of glassgate, got {description(drawable)}")
    return CellDiagram(draw_cell(cell, projected), cell)
