"""Errors of a step whose values have shapes that do not fit: the line, both operands with their axes, the remedy."""

import linecache
import re
from types import FrameType, TracebackType
from typing import Any

from torch import Tensor

from glassgate.cell import Cell, Named, PreActivations, RecurrentTerm, Weights
from glassgate.cell_axes import Axes
from glassgate.cell_shapes import shapes_from_weights
from glassgate.engines.reference_step import hidden_size
from glassgate.engines.symbolic.arrays.step import trace_on
from glassgate.engines.symbolic.step import run_in_new_thread
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.shapes import ShapeError


def shape_error(error: Exception, cell: Cell, weights: Weights, output_size: int) -> ShapeError | None:
    """Return a better error for an error of a step, or None if it is not about shapes.

    The step runs again on traced tensors, which have the names of their axes. If they do not support its operations,
    the error contains torch's message, and the shapes of the values in the line.

    Args:
        error: the error that torch raised.
        cell, weights: the cell and its parameters.
        output_size: the width of the output.
    """
    found = _place_in_step(error.__traceback__)
    if isinstance(error, ShapeError) or found is None:
        return None
    try:
        shapes = shapes_from_weights(cell, weights, hidden_size(cell, weights, len(weights["weight_ih"]), output_size))
        run_in_new_thread(trace_on, cell, shapes, "weight_hr" in weights)
    except ShapeError as fault:
        place = _place_in_step(fault.__traceback__)
        return ShapeError(f"cell {cell._class_name}: {_line(*place) if place else 'step'}: {fault}")
    except (NotTraceable, ValueError, TypeError, RuntimeError, LookupError, AttributeError):
        pass
    if not re.search(r"\b(size|sizes|shape|shapes|dim|dimension|dimensions)\b", str(error)):
        return None
    values = "; ".join(f"{name} is {text}" for name, text in _values_of_line(cell, *found).items())
    return ShapeError(
        f"cell {cell._class_name}: {_line(*found)}: {error}{values and f' ({values})'}; insert an axis of size 1 with "
        "[..., None], or exchange axes with .mT or permute, so that equal axes have equal positions"
    )


def _place_in_step(traceback: TracebackType | None) -> tuple[FrameType, int] | None:
    """The frame and the line number of the author's code in a step; None if no step raised the error."""
    found: tuple[FrameType, int] | None = None
    in_step = False
    while traceback is not None:
        frame = traceback.tb_frame
        module = frame.f_globals.get("__name__", "")
        in_step |= module == "glassgate.cell" and frame.f_code.co_name == "new_state"
        if in_step and not re.match(r"torch\b|glassgate\.(?!cells\b)", module):
            found = frame, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def _code(frame: FrameType, number: int) -> str:
    return linecache.getline(frame.f_code.co_filename, number).strip()


def _line(frame: FrameType, number: int) -> str:
    """The line for messages."""
    text = _code(frame, number)
    return f"line {number} of the step" + (f", `{text}`" if text else "")


def _values_of_line(cell: Cell, frame: FrameType, number: int) -> dict[str, str]:
    """The shapes of the tensors that a line reads, by their expressions, such as `h` or `s.S`."""
    described = {}
    for expression in dict.fromkeys(re.findall(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", _code(frame, number))):
        path, *names = expression.split(".")
        owner, value = None, frame.f_locals.get(path)
        while names and isinstance(value, Named | PreActivations | RecurrentTerm):
            owner, value, path = value, getattr(value, names[0], None), f"{path}.{names[0]}"
            del names[0]
        if isinstance(value, Tensor):
            described[path] = _described(cell, owner, path.rpartition(".")[2], value)
    return described


def _described(cell: Cell, owner: Any, name: str, value: Tensor) -> str:
    """The shape of a value, with the names of its axes if it is one of the values of `owner` with declared axes."""
    axes: Axes = ()
    if owner is not None and cell.declaration is not None:
        names = set(vars(owner))
        if names == {*cell.parameters}:
            axes = cell.parameters[name].axes
        else:
            declared: Any = cell.declaration.state if names == {*cell.state} else cell.declaration.gates
            axes = ("N", *declared[name].axes) if name in declared else ()
    shape = tuple(value.shape)
    return f"({', '.join(map(str, axes))}) = {shape}" if len(axes) == len(shape) > 0 else str(shape)
