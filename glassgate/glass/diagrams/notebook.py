"""What a notebook shows of cells and layers: their diagrams and how many numbers their parameters are."""

from html import escape

from glassgate.cell import Cell
from glassgate.engines.symbolic.graph import NotTraceable
from glassgate.glass.diagrams.cell import draw_cell
from glassgate.glass.diagrams.draw import diagram
from glassgate.layers.cells import RecurrentCell
from glassgate.layers.stack import Recurrent


def html(what: object) -> str:
    """What a notebook shows of a cell or a layer."""
    if isinstance(what, Cell):
        return of_cell(what)
    assert isinstance(what, Recurrent | RecurrentCell)
    return of_layer(what)


def of_cell(cell: Cell) -> str:
    """A cell's diagram, and its parameters per unit."""
    gates, states = f"{len(cell.gates)} ({' '.join(cell.gates)})", ", ".join(cell.state)
    own = ", ".join(cell.parameters) or "none"
    heading = f"<p><code>{escape(repr(cell))}</code>: gates {gates}, states {states}, parameters of its own {own}</p>"
    return f"<div>{heading}{_step(cell)}</div>"


def of_layer(layer: Recurrent | RecurrentCell) -> str:
    """A layer's diagram, that of its cell, and its parameters."""
    pictures = str(diagram(layer)) if isinstance(layer, Recurrent) else ""
    pictures += _step(layer.cell, isinstance(layer, Recurrent) and layer.proj_size > 0)
    rows = [(name, str(tuple(p.shape)), p.numel()) for name, p in layer.named_parameters()]
    rows.append(("in all", "", sum(count for *_, count in rows)))
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{shape}</td><td style='text-align: right'>{count:,}</td></tr>"
        for name, shape, count in rows
    )
    table = f"<table><tr><th>parameter</th><th>shape</th><th>numbers</th></tr>{cells}</table>"
    return f"<div><p><code>{escape(repr(layer))}</code></p>{pictures}<details open>{_SUMMARY}{table}</details></div>"


_SUMMARY = "<summary>Parameters</summary>"


def _step(cell: Cell, projected: bool = False) -> str:
    """The diagram of a step, or why there is none."""
    try:
        return str(draw_cell(cell, projected))
    except NotTraceable as error:
        return f"<p>{escape(str(error))}</p>"
