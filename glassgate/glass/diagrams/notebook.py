"""The display of cells and layers in notebooks: their diagrams, and a table of parameters."""

from html import escape

from glassgate.cell import Cell
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.glass.diagrams.cell import draw_cell
from glassgate.glass.diagrams.layer import draw_layer
from glassgate.layers.cells import RecurrentCell
from glassgate.layers.stack import Recurrent


def html(drawable: object) -> str:
    """The HTML of a cell or a layer for a notebook."""
    if isinstance(drawable, Cell):
        return _cell_html(drawable)
    assert isinstance(drawable, Recurrent | RecurrentCell)
    return _layer_html(drawable)


def _cell_html(cell: Cell) -> str:
    """A cell's gates, states and extra parameters, and its diagram."""
    gates, states = f"{len(cell.gates)} ({' '.join(cell.gates)})", ", ".join(cell.state)
    extra = ", ".join(cell.parameters) or "none"
    heading = f"<p><code>{escape(repr(cell))}</code>: gates {gates}, states {states}, extra parameters {extra}</p>"
    return f"<div>{heading}{_step_diagram(cell)}</div>"


def _layer_html(layer: Recurrent | RecurrentCell) -> str:
    """The diagrams of a layer and of its cell, and a table of the parameters."""
    pictures = str(draw_layer(layer)) if isinstance(layer, Recurrent) else ""
    pictures += _step_diagram(layer.cell, isinstance(layer, Recurrent) and layer.proj_size > 0)
    rows = [(name, str(tuple(p.shape)), p.numel()) for name, p in layer.named_parameters()]
    rows.append(("total", "", sum(count for *_, count in rows)))
    table_rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{shape}</td><td style='text-align: right'>{count:,}</td></tr>"
        for name, shape, count in rows
    )
    summary = "<summary>Parameters</summary>"
    table = f"<table><tr><th>parameter</th><th>shape</th><th>numbers</th></tr>{table_rows}</table>"
    return f"<div><p><code>{escape(repr(layer))}</code></p>{pictures}<details open>{summary}{table}</details></div>"


def _step_diagram(cell: Cell, projected: bool = False) -> str:
    """The diagram of a step, or the reason why it cannot be drawn."""
    try:
        return str(draw_cell(cell, projected))
    except NotTraceable as error:
        return f"<p>{escape(str(error))}</p>"
