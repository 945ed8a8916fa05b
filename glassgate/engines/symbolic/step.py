"""Traces a cell: runs the step on nodes instead of tensors. The resulting graph is the cell's equations."""

import gc
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from inspect import CO_VARARGS
from types import CodeType, FrameType
from typing import Any, TypeVar

from glassgate.cell import Cell, Named, PreActivations, RecurrentTerm
from glassgate.cell_locals import trace_locals
from glassgate.engines.axes import PROJECTED, UNITS, Axis
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Call, Node, check_state, leaf
from glassgate.engines.symbolic.purity import Impure, NoRandomNumbers, refuse_impure
from glassgate.engines.symbolic.rewrite import make_names_unique, rewrite_graph
from glassgate.engines.symbolic.values import NotTraceable, topological_order, tracing
from glassgate.shapes import ShapeError

Traced = TypeVar("Traced")


def equations_of(
    cell: Cell, projected: bool = False, is_watched: Callable[[CodeType], bool] | None = None
) -> Equations:
    """Trace one step of a cell.

    Args:
        cell: the cell.
        projected: whether the output goes through `weight_hr`.
        is_watched: as in `refuse_impure`.

    Raises:
        NotTraceable: the step uses an operation that kernels do not support; the message names it.
    """
    states, named = explain_refusals(cell._class_name, lambda: _trace(cell, projected, is_watched))
    new = rewrite_graph(states)
    states = [new[state] for state in states]
    gate_values = _gate_values(
        cell, topological_order(states), {gate: new[node] for gate, node in named.items() if node in new}
    )
    make_names_unique(states)
    return Equations(
        gates=cell.gates,
        state=cell.state,
        parameters=dict(cell.parameters),
        noise=dict(cell.noise),
        recurrent=cell.recurrent,
        heads=cell.heads,
        projected=projected,
        states=tuple(states),
        gate_values=gate_values,
    )


def explain_refusals(name: str, trace: Callable[[], Traced]) -> Traced:
    """Trace the cell with this name in a new thread, and return the result.

    Raises:
        NotTraceable: the reason why the step cannot be traced.
        ShapeError: the step combines values whose shapes do not fit.
    """
    try:
        return run_in_new_thread(trace)
    except Impure as error:
        raise NotTraceable(f"cell {name}: step {error}; it runs on the reference engine") from None
    except NotTraceable as error:
        raise refusal(name, str(error)) from None
    except ShapeError:
        raise
    except (TypeError, RuntimeError, ArithmeticError, LookupError) as error:
        if str(error).startswith(f"cell {name}: "):
            raise
        first_line = str(error).strip().partition("\n")[0]
        fault = f"raises {type(error).__name__} ({first_line}) when it is traced"
        raise NotTraceable(f"cell {name}: step {fault}; it runs on the reference engine") from error


def refusal(name: str, operation: str) -> NotTraceable:
    """The error of a step that uses an operation, for the cell with this name."""
    return NotTraceable(
        f"cell {name}: step uses {operation}, which the kernels do not support; it runs on the reference engine"
    )


def run_in_new_thread(function: Callable[..., Traced], *args: Any) -> Traced:
    """Run a function in a new thread, in which torch has no active modes and hooks, and return its result."""
    with ThreadPoolExecutor(1, "glassgate") as thread:
        return thread.submit(function, *args).result()


def _trace(
    cell: Cell, projected: bool, is_watched: Callable[[CodeType], bool] | None
) -> tuple[list[Node], dict[str, Node]]:
    with tracing(), NoRandomNumbers(), without_garbage_collection():
        return trace_step(cell, projected, partial(refuse_impure, is_watched=is_watched))


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection, because its callbacks and finalizers call functions that do not belong to the step."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def trace_step(
    cell: Cell, projected: bool, on_call: Callable[[FrameType, Any], None] | None = None
) -> tuple[list[Node], dict[str, Node]]:
    """Run a step on leaf nodes. Return the new states, and the values of local variables that are named like gates.

    Equal nodes are not merged. Results of a function that the cell's author wrote have the call as their origin.

    Args:
        cell, projected: as in `equations_of`.
        on_call: called before each function runs, as in `trace_locals`.
    """

    def product(u: Any) -> Named:
        if not isinstance(u, Node) or u.axis != out:
            raise NotTraceable("a recurrent product with something that is not as wide as the output")
        return Named(cell.gates, [Node(ops.RecurrentHalf(gate), (u,), UNITS, f"{gate}_hh") for gate in cell.gates])

    def parameter(name: str) -> Any:
        if not cell.parameters[name].per_gate:
            return leaf(ops.Parameter(name), UNITS, name)
        return Named(cell.gates, [leaf(ops.Parameter(name, gate), UNITS, f"{name}_{gate}") for gate in cell.gates])

    def projection(h: Any) -> Node:
        return Node(ops.Projection(), (_check_state_axis(cell.state[0], h, UNITS),), PROJECTED)

    if cell.inputs:
        raise NotTraceable("the input itself")
    out = PROJECTED if projected else UNITS
    axes = dict.fromkeys(cell.state, UNITS) | {cell.state[0]: out}
    state = [leaf(ops.State(name), axis, f"{name}_prev") for name, axis in axes.items()]
    ih = Named(cell.gates, [leaf(ops.InputHalf(gate), UNITS, f"{gate}_ih") for gate in cell.gates])
    noise = [leaf(ops.Noise(name), axes.get(noise.state or "", UNITS), name) for name, noise in cell.noise.items()]
    a = PreActivations(ih, RecurrentTerm(product, state[0]) if cell.recurrent else None, Named(cell.noise, noise))
    p = Named(cell.parameters, map(parameter, cell.parameters))
    gates: dict[str, Node] = {}

    def note_name(name: str, value: Any) -> None:
        if isinstance(value, Node):
            value.name = value.name or name
            if name in cell.gates and name not in cell.state:
                gates.setdefault(name, value)

    with trace_locals(note_name, _note_call, on_call):
        new = cell.new_state(a, Named(cell.state, state), p, projection if projected else None)
    states = [_check_state_axis(name, value, axes[name]) for name, value in zip(cell.state, new, strict=True)]
    for name, node in zip(cell.state, states, strict=True):
        node.name = node.name or name
    return states, gates


def _note_call(frame: FrameType, result: Any) -> None:
    """If a cell calls a function that the cell's author wrote, make the call the origin of the results."""
    results, code = list(_nodes(result)), frame.f_code
    if not results or code.co_name.startswith("<") or _LIBRARY.match(frame.f_globals.get("__name__", "")):
        return
    caller = frame.f_back
    while caller is not None and caller.f_code.co_name.startswith("<"):
        caller = caller.f_back
    if caller is not None and isinstance(caller.f_locals.get("self"), Cell):
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)]
        args = tuple(node for name in names for node in _nodes(frame.f_locals.get(name)))
        Call(code.co_name, args, len(results), of_torch=False).mark(results)


_LIBRARY = re.compile(r"torch\b|glassgate\.(cell$|engines\.|layers\.)")
"""Modules whose functions the author of a cell did not write."""


def _nodes(value: Any) -> Iterator[Node]:
    """The nodes in a value, which may be a tuple, a list or `Named`."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple | list | Named):
        for item in value:
            yield from _nodes(item)


def _check_state_axis(name: str, value: Any, axis: Axis) -> Node:
    node = check_state(value)
    if node.axis != axis:
        raise NotTraceable(f"for state {name!r} a value that is not one number per unit")
    return node


def _gate_values(cell: Cell, order: list[Node], named: dict[str, Node]) -> dict[str, Node]:
    """The value that a recording stores for each gate.

    It is the value of the local variable with the gate's name, if this value has a number per row and unit and depends
    on the row. Otherwise it is the pre-activation of the gate.
    """
    alive, gate_values = set(order), {}
    for gate in cell.gates:
        if gate in cell.state:
            continue
        node = named.get(gate)
        if node is None or node not in alive or node.axis != UNITS or _is_equal_in_all_rows(node):
            node = _pre_activation(gate, order)
        if node is not None:
            node.name = node.name or f"{gate}_pre"
            gate_values[gate] = node
    return gate_values


def _is_equal_in_all_rows(node: Node) -> bool:
    """Whether a value is the same for all rows of a batch."""
    return not any(
        isinstance(each.op, ops.InputHalf | ops.RecurrentHalf | ops.State | ops.Noise)
        for each in topological_order([node])
    )


def _pre_activation(gate: str, order: list[Node]) -> Node | None:
    """The sum of the two halves of a gate; the input half if no node adds the two; None without an input half."""
    ih, hh = ops.InputHalf(gate), ops.RecurrentHalf(gate)
    for node in order:
        if node.op == "add" and {arg.op for arg in node.inputs if arg.op in (ih, hh)} == {ih, hh}:
            return node
    return next((node for node in order if node.op == ih), None)
