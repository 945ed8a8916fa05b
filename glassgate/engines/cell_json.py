"""Cells as JSON text: the equations of one step, which run without the Python class of the cell."""

import json
from typing import Any

from glassgate.cell import Cell
from glassgate.engines.symbolic.equations import Equations, parse
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.engines.traced_cells import current_equations

_FORMAT = 1


def cell_to_json(cell: Cell) -> str:
    """Return a cell as JSON text: its name, its gates and states, its parameters and the equations of one step.

    Args:
        cell: the cell. The arguments of its constructor become constants of the equations.

    Returns:
        Text for `cell_from_json`. Cells with equal names and equations give equal text.

    Raises:
        TypeError: `cell` is not a cell, or its step uses an operation that equations cannot express.

    Example:
        >>> import glassgate as gg
        >>> again = gg.cell_from_json(gg.cell_to_json(gg.cells.PeepholeLSTM()))
        >>> again.gates, list(again.parameters)
        (('i', 'f', 'g', 'o'), ['peep_i', 'peep_f', 'peep_o'])
    """
    if not isinstance(cell, Cell):
        raise TypeError(f"cell_to_json: cell must be an instance of glassgate.Cell, got {cell!r}")
    if isinstance(cell, JsonCell):
        return cell.text
    content = {"format": _FORMAT, "name": type(cell).__name__, "equations": json.loads(current_equations(cell).text)}
    try:
        content["projected"] = json.loads(current_equations(cell.projected(), projected=True).text)
    except (NotTraceable, ValueError):  # the cell does not run in a layer with proj_size
        content["projected"] = None
    return _to_text(content)


def cell_from_json(text: str) -> "JsonCell":
    """Return the cell of a JSON text. Nothing in the text is executed.

    Args:
        text: the result of `cell_to_json`.

    Returns:
        A cell that computes the same in every layer, with the same parameters and initial values.

    Raises:
        ValueError: the text does not contain a cell.

    Example:
        >>> import torch, glassgate as gg
        >>> cell = gg.cell_from_json(gg.cell_to_json(gg.cells.MGU()))
        >>> output, h_n = gg.Recurrent(cell, 3, 4)(torch.randn(5, 2, 3))
        >>> type(cell).__name__, output.shape
        ('MGU', torch.Size([5, 2, 4]))
    """
    try:
        content = json.loads(text)
        name, format = content["name"], content["format"]
        if format != _FORMAT:
            raise ValueError(f"expected format {_FORMAT}, got {format!r}; upgrade glassgate")
        if not (isinstance(name, str) and name.isidentifier()):
            raise ValueError(f"expected the name of a class, got {name!r}")
        equations = _parse_equations(content["equations"], projected=False)
        projected = content["projected"] and _parse_equations(content["projected"], projected=True)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"cell_from_json: expected the text that cell_to_json returns, got {error!r}") from None
    cell_class: type[JsonCell] = type(name, (JsonCell,), {})  # messages and diagrams show the class's name
    return cell_class(_to_text(content), equations, projected)


class JsonCell(GraphCell):
    """A cell that was read from JSON.

    Args:
        text: the JSON text.
        equations: the equations of its step.
        projected: the equations of its step in a layer with proj_size; None if it does not run in such a layer.
    """

    def __init__(self, text: str, equations: Equations, projected: Equations | None):
        super().__init__(equations)
        self.text, self._projected = text, projected

    def projected(self) -> Cell:
        """The cell that runs in a layer with proj_size.

        Raises:
            ValueError: the cell does not run in such a layer.
        """
        if self._projected is None:
            raise ValueError(f"cell {type(self).__name__}: its step reads h unit by unit, so h cannot be projected")
        return GraphCell(self._projected)

    def __reduce__(self) -> Any:
        return cell_from_json, (self.text,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(from JSON)"


def _to_text(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"))


def _parse_equations(content: Any, projected: bool) -> Equations:
    equations = parse(json.dumps(content))
    if equations.projected != projected:
        raise ValueError("the plain equations and those with a projection are interchanged")
    return equations
