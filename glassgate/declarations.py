"""Compares the declarations of a cell with its step, for `gg.check`: weights, names, projection, shapes.

Each function returns the fault and its remedy, or an empty string.
"""

import linecache
import re
import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from glassgate.cell import Cell
from glassgate.cell_locals import trace_locals
from glassgate.cell_shapes import example_sizes
from glassgate.engines.choose import engine
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import array_step
from glassgate.engines.symbolic.values import NotTraceable, Symbolic
from glassgate.engines.traced_cells import current_equations
from glassgate.layers.stack import Recurrent

INPUTS, UNITS, PROJECTED, STEPS, ROWS = 4, 6, 3, 2, 3
"""The sizes of the layers that are run: H_in, and the units and projected units per head, L, N."""


def unread_weights(cell: Cell) -> str:
    """Return the rows of the weights and the parameters that the new states do not depend on.

    Cells that cannot be traced are not checked.
    """
    try:
        nodes: Sequence[Symbolic]
        if cell.declaration is None:
            nodes = current_equations(cell).nodes
        else:
            nodes = array_step(cell, *example_sizes(cell, INPUTS, UNITS)).values
    except NotTraceable:
        return ""
    operations = [node.op for node in nodes]
    unread = []
    for half, letter, kind in (("ih", "x", ops.InputHalf), ("hh", "h", ops.RecurrentHalf)):
        gates = [gate for gate in cell.gates_that_read(letter) if kind(gate) not in operations]
        if gates and (cell.recurrent or half == "ih"):
            unread.append(f"the rows of weight_{half} for {_enumerate(gates)}")
    read = {op.name for op in operations if isinstance(op, ops.Parameter)}
    unread += [f"the parameter {name!r}" for name in cell.parameters if name not in read]
    if not unread:
        return ""
    return (
        f"step does not read {' and '.join(unread)}; they stay at their initial values, and count as parameters and in "
        "the time of a step. Remove what no equation needs; recurrent = False removes weight_hh"
    )


def shared_names(cell: Cell) -> str:
    """Return the names that a cell uses for two different values.

    A gate may have the name of a state if the state is its value, as in an RNN.
    """
    kinds = {"gate": cell.gates, "state": cell.state, "parameter": cell.parameters, "noise": cell.noise}
    used: dict[str, list[str]] = {}
    for kind, names in kinds.items():
        for name in names:
            used.setdefault(name, []).append(kind)
    differ = _gates_that_differ_from_their_state(cell)
    clashes = [
        f"{name!r} is a {' and a '.join(kinds_of_name)}"
        for name, kinds_of_name in used.items()
        if len(kinds_of_name) > 1 and (kinds_of_name != ["gate", "state"] or name in differ)
    ]
    if not clashes:
        return ""
    return (
        f"{', '.join(clashes)}; recordings and drawings have one value under each name, the state rather than the "
        "gate. Give each value its own name"
    )


def refused_projection(cell: Cell) -> str:
    """Return the error of a call of a layer with `proj_size`, if the constructor of this layer raised none."""
    try:
        inputs, units = example_sizes(cell, INPUTS, UNITS)
        layer = Recurrent(cell, inputs, units, proj_size=PROJECTED * cell.heads)
    except ValueError:  # the cell states that it has no projection
        return ""
    try:
        with engine("reference"), torch.no_grad():
            layer.eval()(torch.randn(STEPS, ROWS, inputs))
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        return (
            f"a layer with proj_size can be created, but a call raises {type(error).__name__}: {error}. If the cell "
            "has no projection, set `projected = glassgate.cell.no_projection` in its class"
        )
    return ""


def first_other_shape(cell: Cell) -> str:
    """Return the first value of a step that has neither one number per unit nor one per row, with its line."""
    if cell.declaration is not None:
        return ""  # the error of the step names its axes
    width = UNITS * cell.heads
    values = _Shapes({(ROWS, width), (ROWS, 1), (width,), (1,), ()})
    layer = Recurrent(cell, INPUTS, width).eval()
    try:
        with engine("reference"), torch.no_grad(), values:
            layer(torch.randn(STEPS, ROWS, INPUTS))
    except (AttributeError, TypeError, ValueError, RuntimeError):
        pass  # the caller has this error, and looks for its cause
    if not values.found:
        return ""
    # A value such as k[..., None] is only an operand of the product that has several numbers per unit.
    shape, line = next(((shape, line) for shape, line in values.found if 1 not in shape[1:]), values.found[0])
    return (
        f"states have one number per unit; got {shape} instead of {(ROWS, width)} in `{line}`. Reduce the value to one "
        "number per unit, or divide it into several states"
    )


class _Shapes(TorchFunctionMode):
    """Finds the results of torch functions in a step whose shapes are none of `expected`, with their lines."""

    def __init__(self, expected: Iterable[tuple[int, ...]]) -> None:
        super().__init__()
        self.expected = set(expected)
        self.found: list[tuple[tuple[int, ...], str]] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **kwargs or {})
        is_other = isinstance(result, Tensor) and tuple(result.shape) not in self.expected
        if is_other and (frame := _line_of_step(sys._getframe(1))) is not None:
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            self.found.append((tuple(result.shape), line or f"line {frame.f_lineno}"))
        return result


def _line_of_step(frame: FrameType | None) -> FrameType | None:
    """Return the frame, of a cell's step or of a function that it calls, that called torch; None for engines."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("torch"):
        frame = frame.f_back
    if frame is None or re.match(r"glassgate\.(?!cells\b)", frame.f_globals.get("__name__", "")):
        return None
    caller: FrameType | None = frame
    while caller is not None and not (
        caller.f_code.co_name == "step" and isinstance(caller.f_locals.get("self"), Cell)
    ):
        caller = caller.f_back
    return caller and frame


def _gates_that_differ_from_their_state(cell: Cell) -> set[str]:
    """Return the gates with a local variable of their name whose value is not that of the state of this name."""
    if not set(cell.gates) & set(cell.state):
        return set()
    values: dict[str, Any] = {}
    # Recordings call this function, so it must not change the random numbers of a training.
    with torch.random.fork_rng(devices=[]), engine("reference"), torch.no_grad(), trace_locals(values.__setitem__):
        torch.manual_seed(0)
        inputs, units = example_sizes(cell, INPUTS, UNITS)
        layer = Recurrent(cell, inputs, units).eval()
        initial = tuple(torch.randn(1, ROWS, *form.shape) for form in layer.glassgate.parts[0].forms.values())
        x = torch.randn(1, ROWS, inputs)
        _, _, states = layer(x, initial if len(initial) > 1 else initial[0], return_states=True)
    states = {name.rpartition(".")[2]: value for name, value in states.items()}
    return {
        name
        for name in set(cell.gates) & set(cell.state) & values.keys()
        if isinstance(values[name], Tensor) and not torch.equal(values[name].flatten(1), states[name][0].flatten(1))
    }


def _enumerate(gates: list[str]) -> str:
    return f"gate{'s' * (len(gates) > 1)} {', '.join(gates)}"
