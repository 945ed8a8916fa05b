"""Expands the products with the recurrent weights of a step into sums, with the rows of each gate as a parameter."""

from dataclasses import replace

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Value, leaf, rename
from glassgate.engines.symbolic.rewrite import rewrite_graph

WEIGHT, BIAS = "weight_hh", "bias_hh"
"""The names of the parameters; each is a parameter per gate that reads h."""


def with_sums(step: ArrayStep) -> ArrayStep:
    """The step without recurrent products: with sums of products of the parameters `WEIGHT` and `BIAS` instead.

    The parameter `WEIGHT` of a gate has the axes of the gate, then those of the output, which are renamed. Its
    elements are those of the gate's rows.
    """
    if not any(isinstance(value.op, ops.RecurrentHalf) for value in step.values):
        return step
    sizes, leaves = dict(step.sizes), dict[ops.Parameter, Value]()

    def another(axis: str, taken: list[str]) -> str:
        size = sizes[axis]
        while axis in taken or sizes.setdefault(axis, size) != size:
            axis += "'"
        return axis

    def expand(value: Value, copy: Value) -> Value | None:
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
    return replace(step, sizes=sizes, states=states)
