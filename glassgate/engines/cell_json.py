"""Cells as JSON text: the equations of one step, which run without the Python class of the cell."""

import json
from typing import Any

from glassgate.cell import Cell
from glassgate.engines.meaning import current_equations
from glassgate.engines.symbolic.equations import Equations, parse
from glassgate.engines.symbolic.graph import NotTraceable
from glassgate.engines.symbolic.graph_cell import GraphCell

_FORMAT = 1


def cell_to_json(cell: Cell) -> str:
    """Return a cell as JSON text: its name, its gates and states, its parameters and the equations of one step.

    Args:
        cell: the cell; the arguments of its constructor become constants of the equations

    Returns:
        text for `cell_from_json`; equal cells give equal text

    Raises:
        TypeError: not a cell, or the step uses an operation that equations cannot express

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
    return _written(content)


def cell_from_json(text: str) -> "JsonCell":
    """Return the cell of a JSON text. Nothing in the text is executed.

    Args:
        text: the result of `cell_to_json`

    Returns:
        a cell that computes the same in every layer, with the same parameters and initial values

    Raises:
        ValueError: the text contains no cell

    Example:
        >>> import torch, glassgate as gg
        >>> cell = gg.cell_from_json(gg.cell_to_json(gg.cells.MGU()))
        >>> output, h_n = gg.Recurrent(cell, 3, 4)(torch.randn(5, 2, 3))
        >>> type(cell).__name__, output.shape
        ('MGU', torch.Size([5, 2, 4]))
    """
    try:
        content = json.loads(text)
        name, number = content["name"], content["format"]
        if number != _FORMAT:
            raise ValueError(f"expected format {_FORMAT}, got {number!r}; upgrade glassgate")
        if not (isinstance(name, str) and name.isidentifier()):
            raise ValueError(f"expected the name of a class, got {name!r}")
        equations = _equations(content["equations"], projected=False)
        projected = content["projected"] and _equations(content["projected"], projected=True)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"cell_from_json: expected the text that cell_to_json returns, got {error!r}") from None
    kind: type[JsonCell] = type(name, (JsonCell,), {})  # messages and diagrams show the class's name
    return kind(_written(content), equations, projected)


class JsonCell(GraphCell):
    """A cell that was read from JSON.

    Args:
        text: the JSON text
        equations: the equations of its step
        projected: those of its step in a layer with proj_size; None if the cell has none
    """

    def __init__(self, text: str, equations: Equations, projected: Equations | None):
        super().__init__(equations)
        self.text, self._projected = text, projected

    def projected(self) -> Cell:
        """The cell that runs in a layer with proj_size.

        Raises:
            ValueError: it has none
        """
        if self._projected is None:
            raise ValueError(f"cell {type(self).__name__}: its step reads h unit by unit, so h cannot be projected")
        return GraphCell(self._projected)

    def __reduce__(self) -> Any:
        return cell_from_json, (self.text,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(from JSON)"


def _written(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"))


def _equations(content: Any, projected: bool) -> Equations:
    equations = parse(json.dumps(content))
    if equations.projected != projected:
        raise ValueError("the plain equations and those with a projection are interchanged")
    return equations
