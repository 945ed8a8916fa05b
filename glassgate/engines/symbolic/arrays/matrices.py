"""Expands the products with the recurrent weights and the projection of a step into sums of parameters."""

from dataclasses import replace

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Value, leaf, rename
from glassgate.engines.symbolic.rewrite import rewrite_graph

WEIGHT, BIAS = "weight_hh", "bias_hh"
"""The names of the parameters; each is a parameter per gate that reads h."""
PROJECTION = ops.Parameter("weight_hr")
"""The matrix of the projection."""


def with_sums(step: ArrayStep) -> ArrayStep:
    """The step without products and projections: with sums of products of `WEIGHT`, `BIAS` and `PROJECTION` instead.

    The parameter `WEIGHT` of a gate has the axes of the gate, then those of the output, which are renamed. Its
    elements are those of the gate's rows.
    """
    if not any(isinstance(value.op, ops.RecurrentHalf | ops.Projection) for value in step.values):
        return step
    sizes, leaves = dict(step.sizes), dict[ops.Parameter, Value]()

    def another(axis: str, taken: list[str]) -> str:
        size = sizes[axis]
        while axis in taken or sizes.setdefault(axis, size) != size:
            axis += "'"
        return axis

    def expand(value: Value, copy: Value) -> Value | None:
        if isinstance(value.op, ops.Projection):
            (u,), axes = copy.inputs, (*value.axes, *copy.inputs[0].axes)
            matrix = leaves.setdefault(PROJECTION, leaf(PROJECTION, axes, PROJECTION.name))
            return Value(ops.Sum(u.axes), (Value("mul", (matrix, u), axes),), value.axes)
        if not isinstance(value.op, ops.RecurrentHalf):
            return None
        gate, (u,) = value.op.gate, copy.inputs
        own, output = step.gates[gate], next(iter(step.state.values()))
        taken = [*own, *u.axes]
        columns = list[str]()
        for axis in output:
            columns.append(another(axis, [*own, *columns, *(a for a in taken if a != axis)]))
        for axis, column in zip(output, columns, strict=True):
            u = rename(u, axis, column)
        axes = (*own, *columns)

        def parameter(name: str, axes: tuple[str, ...]) -> Value:
            op = ops.Parameter(name, gate)
            return leaves.setdefault(op, leaf(op, axes, f"{name}_{gate}"))

        weight, bias = parameter(WEIGHT, axes), parameter(BIAS, own)
        product = Value("mul", (weight, u), axes)
        result: Value = Value(ops.Sum(tuple(columns)), (product,), own) + bias
        return result

    new = rewrite_graph(step.states, expand)
    merged = rewrite_graph(new[state] for state in step.states)
    states = tuple(merged[new[state]] for state in step.states)
    for old, state in zip(step.states, states, strict=True):
        state.name = state.name or old.name
    local = {name: each._replace(value=merged[new[each.value]]) for name, each in step.locals.items()}
    return replace(step, sizes=sizes, states=states, locals=local)
