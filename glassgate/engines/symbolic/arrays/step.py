"""Traces the step of a cell with declared axes: runs it on traced tensors. The result is an `ArrayStep`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import CodeType
from typing import Any, NamedTuple

from glassgate.cell import Cell, Named, PreActivations, RecurrentTerm
from glassgate.cell_axes import PROJECTED, UNITS, Axes, Declaration
from glassgate.cell_locals import trace_locals
from glassgate.cell_shapes import Shapes, shapes_of
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.functions import FUNCTIONS
from glassgate.engines.symbolic.arrays.tensor import ROWS, Scope, TracedTensor
from glassgate.engines.symbolic.arrays.value import Value, constant, index, leaf
from glassgate.engines.symbolic.operations import MASKS
from glassgate.engines.symbolic.ops import Index
from glassgate.engines.symbolic.purity import NoRandomNumbers, refuse_impure
from glassgate.engines.symbolic.rewrite import make_names_unique, rewrite_graph
from glassgate.engines.symbolic.step import run_in_new_thread, without_garbage_collection
from glassgate.engines.symbolic.values import NotTraceable, topological_order, tracing
from glassgate.shapes import ShapeError


class Local(NamedTuple):
    """A local variable of a step.

    Attributes:
        value: its value. It is constant along the axes in `dims` that it lacks.
        dims: the axis at each position after the batch; None for an axis of size 1.
    """

    value: Value
    dims: tuple[str | None, ...]


@dataclass(frozen=True, eq=False)
class ArrayStep:
    """One step as a graph of values over named axes, for the sizes of one layer.

    Attributes:
        sizes: the size of each axis. A declared axis has its declared name. Axes of slices, parts and merged axes have
            derived names.
        gates, state: the declared axes of each gate and state, by name. An axis that is declared as a size is `sizeN`.
        states: the new states, in the order of `state`. Their axes are a subset of the declared ones, in any order: a
            state is constant along an axis that its value lacks.
        named: all values that the author has named, by name. The names are unique.
        joined: pairs of different axes that the step combines because their sizes are equal.
        reads: for each gate the halves of the weights in which it has rows: "x", "h" or "xh".
        inputs: the axes of each block of the input that a step reads, by name.
        locals: the local variables that the new states depend on, except those with the name of a state. Of several
            values, a variable has the first.
        unread: the names of the other local variables with a value per row.
    """

    sizes: Mapping[str, int]
    gates: Mapping[str, tuple[str, ...]]
    state: Mapping[str, tuple[str, ...]]
    states: tuple[Value, ...]
    named: Mapping[str, Value]
    joined: frozenset[tuple[str, str]]
    reads: Mapping[str, str]
    inputs: Mapping[str, tuple[str, ...]]
    locals: Mapping[str, Local] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    @cached_property
    def values(self) -> list[Value]:
        """All values that the new states depend on, each after its inputs."""
        return topological_order(self.states)

    def __str__(self) -> str:
        sizes = ", ".join(f"{axis} = {size}" for axis, size in self.sizes.items())
        return "\n".join([f"sizes: {sizes}", *map(repr, self.values)])


def array_step(
    cell: Cell,
    input_size: int,
    hidden_size: int,
    proj_size: int = 0,
    *,
    is_watched: Callable[[CodeType], bool] | None = None,
) -> ArrayStep:
    """Trace one step of a cell.

    Args:
        cell: the cell. A cell with one number per unit everywhere has the axis "units".
        input_size, hidden_size: the sizes of the layer.
        proj_size: the width of the projection of the output; 0 without one.
        is_watched: as in `refuse_impure`.

    Raises:
        NotTraceable: the step uses an operation that the graph does not have; the message names it.
        ShapeError: the step combines values whose shapes do not fit.

    Example:
        >>> import glassgate as gg
        >>> class Fast(gg.Cell):
        ...     gates = {"k": ("key",), "v": ("value",)}
        ...     state = {"h": ("value",), "S": ("key", "value")}
        ...     key, recurrent = 4, False
        ...     def step(self, a, s):
        ...         S = s.S + a.k[..., None] * a.v[..., None, :]
        ...         return (a.k[..., None] * S).sum(-2), S
        >>> h, S = array_step(Fast(), 6, 3).states
        >>> h.op, h.axes, S.axes
        (Sum(axes=('key',)), ('value',), ('key', 'value'))
    """
    shapes = shapes_of(cell, input_size, hidden_size, proj_size)
    return run_in_new_thread(_trace, cell, shapes, bool(proj_size), is_watched)


def _trace(cell: Cell, shapes: Shapes, projected: bool, is_watched: Callable[[CodeType], bool] | None) -> ArrayStep:
    with tracing(), NoRandomNumbers(), without_garbage_collection():
        return trace_on(cell, shapes, projected, partial(refuse_impure, is_watched=is_watched))


class _Leaves:
    """Creates the leaves of a trace."""

    def __init__(self, cell: Cell, shapes: Shapes) -> None:
        self.cell, self.shapes, self.scope = cell, shapes, Scope(dict(shapes.sizes), FUNCTIONS)
        self.declaration: Declaration = shapes.declaration

    def axes(self, declared: Axes) -> tuple[str, ...]:
        """The axes of a declared value. The second of two equal axes is renamed."""
        axes: list[str] = []
        for axis in declared:
            name = axis if isinstance(axis, str) else self.scope.new_axis(f"size{axis}", axis)
            axes.append(self.scope.another(name, {*axes}))
        return tuple(axes)

    def tensor(self, op: ops.Leaf, declared: Axes, name: str | None = None) -> TracedTensor:
        """A leaf, named `name` or as its operation. An axis of size 1 has a name too, so that messages show it."""
        axes = self.axes(declared)
        is_row = not isinstance(op, ops.Parameter)
        return TracedTensor(self.scope, leaf(op, axes, name or op.name), (ROWS, *axes) if is_row else axes)

    def gates(self, half: str, make: Callable[[str, Axes], Any]) -> Named:
        names = self.declaration.gates_that_read(half)
        return Named(names, [make(name, self.declaration.gates[name].axes) for name in names])

    def parameter(self, name: str) -> Any:
        parameter = self.cell.parameters[name]
        if not parameter.per_gate:
            return self.tensor(ops.Parameter(name), parameter.axes)
        gates = self.declaration.gates
        values = [self.tensor(ops.Parameter(name, g), v.axes, f"{name}_{g}") for g, v in gates.items()]
        return Named(gates, values)

    def recurrent(self, output: TracedTensor) -> RecurrentTerm | None:
        def product(u: Any) -> Named:
            if not isinstance(u, TracedTensor) or u.shape != output.shape:
                raise NotTraceable("a recurrent product with something that has not the shape of the output")
            value = _over_axes(u, output)

            def half(gate: str, axes: Axes) -> TracedTensor:
                return self.with_axes(Value(ops.RecurrentHalf(gate), (value,), self.axes(axes), f"{gate}_hh"))

            return self.gates("h", half)

        return RecurrentTerm(product, output) if self.cell.recurrent else None

    def projection(self, h: Any) -> TracedTensor:
        ones = self.with_axes(constant(1.0, self.axes((UNITS,))))
        if not isinstance(h, TracedTensor) or h.shape != ones.shape:
            raise NotTraceable("a projection of something that has not one number per unit")
        value = _over_axes(h, ones)
        value = value if value.axes else value * ones.value
        return self.with_axes(Value(ops.Projection(), (value,), self.axes((PROJECTED,))))

    def with_axes(self, value: Value) -> TracedTensor:
        return TracedTensor(self.scope, value, (ROWS, *value.axes))


def trace_on(
    cell: Cell, shapes: Shapes, projected: bool, on_call: Callable[[Any, Any], None] | None = None
) -> ArrayStep:
    """Run a step on traced tensors.

    Args:
        cell: the cell.
        shapes: the shapes of the layer's values.
        projected: whether the output goes through `weight_hr`.
        on_call: called before each function runs, as in `trace_locals`.
    """
    leaves = _Leaves(cell, shapes)
    declaration, scope = shapes.declaration, leaves.scope
    states = [leaves.tensor(ops.State(name), s.axes, f"{name}_prev") for name, s in declaration.state.items()]
    ih = leaves.gates("x", lambda name, axes: leaves.tensor(ops.InputHalf(name), axes, f"{name}_ih"))
    output = (UNITS,) if projected else declaration.state[cell.state[0]].axes
    noise = [
        leaves.tensor(ops.Noise(name), declaration.state[n.state].axes if n.state else output)
        for name, n in cell.noise.items()
    ]
    inputs = {name: leaves.tensor(ops.Input(name), axes) for name, axes in declaration.inputs.items()}
    reads = {name: gate.reads for name, gate in declaration.gates.items() if gate.reads != "xh" and cell.recurrent}
    a = PreActivations(
        ih,
        leaves.recurrent(states[0]),
        Named(cell.noise, noise),
        reads=reads,
        input=Named(inputs, inputs.values()) if inputs else None,
    )
    p = Named(cell.parameters, map(leaves.parameter, cell.parameters))

    variables: dict[str, TracedTensor] = {}

    def note_name(name: str, value: Any) -> None:
        if isinstance(value, TracedTensor):
            value.value.name = value.value.name or name
            variables.setdefault(name, value)

    with trace_locals(note_name, None, on_call):
        new = cell.new_state(a, Named(cell.state, states), p, leaves.projection if projected else None)
    results = [_as_state(cell, name, v, old) for name, v, old in zip(cell.state, new, states, strict=True)]
    merged = rewrite_graph(results)
    results = [merged[value] for value in results]
    own = {name: v for name, v in variables.items() if v.dims[:1] == (ROWS,) and name not in cell.state}
    own = {name: v for name, v in own.items() if v.value.op not in MASKS}
    local = {name: v for name, v in own.items() if v.value in merged}
    for name, value in zip(cell.state, results, strict=True):
        value.name = value.name or name
    return ArrayStep(
        scope.sizes,
        {name: leaves.axes(gate.axes) for name, gate in declaration.gates.items()},
        {name: leaves.axes(state.axes) for name, state in declaration.state.items()},
        tuple(results),
        make_names_unique(results),
        frozenset(scope.joined),
        {name: gate.reads for name, gate in declaration.gates.items()},
        {name: leaves.axes(axes) for name, axes in declaration.inputs.items()},
        {name: Local(merged[v.value], v.dims[1:]) for name, v in local.items()},
        frozenset(own.keys() - local.keys()),
    )


def _as_state(cell: Cell, name: str, new: Any, old: TracedTensor) -> Value:
    """The value of a new state, over the axes of the state."""
    if not isinstance(new, TracedTensor) or new.value.op in MASKS:
        raise NotTraceable(f"for state {name!r} a value that is not a tensor of numbers")
    if new.shape != old.shape:
        raise ShapeError(f"step must return state {name!r} as {old.described}, got {new.described}")
    return _over_axes(new, old)


def _over_axes(tensor: TracedTensor, like: TracedTensor) -> Value:
    """The value of a tensor, over the axes of a tensor of the same shape."""
    renamed = {
        axis: Index(((to, 1),))
        for axis, to in zip(tensor.dims, like.dims, strict=True)
        if axis is not None and to is not None and axis != to and axis in tensor.value.axes
    }
    return index(tensor.value, renamed)
