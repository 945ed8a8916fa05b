"""Cells as text and back: operators take tensors and text, and a saved program must find its cell again."""

import copy
import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

from glassgate.cell import Cell
from glassgate.engines.symbolic.graph import NotTraceable
from glassgate.engines.symbolic.trace import trace


def _constant(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compiler.assume_constant_result` without its import of the whole compiler."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


_handles: dict[Any, str] = {}
_cells: dict[str, Cell] = {}
_untraceable: dict[Any, str | None] = {}


@_constant
def handle(cell: Cell) -> str:
    """The text that stands for the cell: where to import it and its options, or a number in this process."""
    key = _key(cell)
    if key not in _handles:
        text = _text(cell)
        if _imported(text, key) is None:
            text = f"{type(cell).__qualname__} {len(_cells)}"
        _cells[text] = copy.deepcopy(cell)
        _handles[key] = text
    return _handles[key]


def cell_of(text: str) -> Cell:
    """The cell that a handle stands for.

    Raises:
        RuntimeError: it was defined in another process and cannot be imported.
    """
    if text not in _cells:
        cell = _imported(text)
        if cell is None:
            raise RuntimeError(f"this program runs a cell {text!r} that cannot be imported here")
        _cells[text] = cell
    return _cells[text]


@_constant
def untraceable(cell: Cell, projected: bool) -> str | None:
    """Why no kernel can express the cell, or None."""
    key = _key(cell), projected
    if key not in _untraceable:
        try:
            trace(cell, projected)
            _untraceable[key] = None
        except NotTraceable as error:
            _untraceable[key] = str(error)
    return _untraceable[key]


def _key(value: Any) -> Any:
    """What tells one cell from another: its class and everything in it."""
    if isinstance(value, Cell):
        return type(value), *((name, _key(v)) for name, v in value.__dict__.items())
    if isinstance(value, dict):
        return tuple((name, _key(v)) for name, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(_key(v) for v in value)
    return value if type(value).__hash__ is not None else id(value)


def _text(cell: Cell) -> str:
    try:
        options = json.dumps(cell.options())
    except TypeError:
        options = ""
    return f"{type(cell).__module__}:{type(cell).__qualname__} {options}"


def _imported(text: str, key: Any = None) -> Cell | None:
    """The cell, made anew; None if the text does not lead to one, or to another than that with the key."""
    place, _, options = text.partition(" ")
    module, _, name = place.partition(":")
    try:
        cell = getattr(import_module(module), name)(**json.loads(options))
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    return cell if isinstance(cell, Cell) and key in (None, _key(cell)) else None
