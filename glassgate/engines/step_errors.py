"""Errors of a step whose values have shapes that do not fit: the line, both operands with their axes, the remedy."""

import linecache
import re
from types import FrameType, TracebackType

from glassgate.cell import Cell, Weights
from glassgate.cell_shapes import shapes_from_weights
from glassgate.engines.reference_step import hidden_size
from glassgate.engines.symbolic.arrays.step import trace_on
from glassgate.engines.symbolic.graph import NotTraceable
from glassgate.engines.symbolic.step import run_in_new_thread
from glassgate.shapes import ShapeError


def shape_error(error: Exception, cell: Cell, weights: Weights, output_size: int) -> ShapeError | None:
    """Return a better error for an error of a step, or None if it is not about shapes.

    The step runs again on traced tensors, which have the names of their axes.

    Args:
        error: the error that torch raised.
        cell, weights: the cell and its parameters.
        output_size: the width of the output.
    """
    if isinstance(error, ShapeError) or _line_of_step(error.__traceback__) is None:
        return None
    try:
        shapes = shapes_from_weights(cell, weights, hidden_size(cell, weights, len(weights["weight_ih"]), output_size))
        run_in_new_thread(trace_on, cell, shapes)
    except ShapeError as fault:
        line = _line_of_step(fault.__traceback__)
        new = ShapeError(f"cell {cell._class_name}: {line or 'step'}: {fault}")
        return new
    except (NotTraceable, ValueError, TypeError, RuntimeError, LookupError, AttributeError):
        pass
    return None


def _line_of_step(traceback: TracebackType | None) -> str | None:
    """The last line of the author's code in a step, for messages; None if no step raised the error."""
    found: tuple[FrameType, int] | None = None
    in_step = False
    while traceback is not None:
        frame = traceback.tb_frame
        module = frame.f_globals.get("__name__", "")
        in_step |= module == "glassgate.cell" and frame.f_code.co_name == "new_state"
        if in_step and not re.match(r"torch\b|glassgate\.(?!cells\b)", module):
            found = frame, traceback.tb_lineno
        traceback = traceback.tb_next
    if found is None:
        return None
    frame, number = found
    text = linecache.getline(frame.f_code.co_filename, number).strip()
    return f"line {number} of the step" + (f", `{text}`" if text else "")
