"""The graph of one step over named axes, with the weights of a direction. Emitters of C and JavaScript read it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np
from torch import Tensor

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.evaluate import evaluate
from glassgate.engines.symbolic.arrays.matrices import BIAS, WEIGHT, with_sums
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Value, leaf
from glassgate.engines.symbolic.rewrite import in_primitives, rewrite_graph
from glassgate.engines.symbolic.values import topological_order
from glassgate.export.array_places import Place, strides_of
from glassgate.export.network import ArraySpec

Axes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fixed(ops.Leaf):
    """A value that depends only on parameters, with a unique name."""

    symbol = "fixed"


@dataclass(frozen=True, eq=False)
class ArrayGraph:
    """One step in primitive operations, without recurrent products: these are sums.

    Attributes:
        sizes: the size of each axis.
        state: the axes of each state.
        states: the new states, by name.
        constants: the values that depend only on parameters and that others read, with their axes. They are leaves with
            the operation `Fixed`.
    """

    sizes: Mapping[str, int]
    state: Mapping[str, Axes]
    states: Mapping[str, Value]
    constants: Mapping[Value, np.ndarray]

    @property
    def values(self) -> list[Value]:
        """The values that depend on rows, each after its inputs."""
        values = topological_order([*self.states.values()])
        return [value for value in values if not isinstance(value.op, Fixed | ops.Constant)]


def array_graph(spec: ArraySpec) -> ArrayGraph:
    """Return the graph of the step of a direction."""
    step = with_sums(spec.step)
    primitive = in_primitives(step.states)
    states = [primitive[value] for value in step.states]
    values = topological_order(states)
    fixed: set[Value] = set()
    for value in values:
        is_leaf = isinstance(value.op, ops.Parameter | ops.Constant)
        if is_leaf or (value.inputs and fixed.issuperset(value.inputs)):
            fixed.add(value)
    read = {arg for v in values if v not in fixed for arg in v.inputs} | {*states}
    constants = [v for v in values if v in fixed and v in read and not isinstance(v.op, ops.Constant)]
    parameters = _Parameters(spec, step)
    parts: dict[ops.Leaf, Tensor] = {v.op: parameters(v.op)[None] for v in values if isinstance(v.op, ops.Parameter)}
    numbers = evaluate(step.sizes, constants, parts) if constants else []
    leaves = {value: leaf(Fixed(f"{k}"), value.axes, value.name) for k, value in enumerate(constants)}
    new = rewrite_graph(states, lambda value, _: leaves.get(value))
    arrays = {leaves[v]: n[0].numpy() for v, n in zip(constants, numbers, strict=True)}
    return ArrayGraph(
        step.sizes, step.state, {name: new[v] for name, v in zip(step.state, states, strict=True)}, arrays
    )


def input_places(spec: ArraySpec, graph: ArrayGraph, gates: str, x: str, start: str = "") -> dict[Value, Place]:
    """The places of pre-activations and blocks of the input.

    Args:
        spec: the direction.
        graph: its step.
        gates: the array with the pre-activations of all gates.
        x: the array with the input.
        start: the expression of the index at which the input of the step begins in `x`; "" for 0.
    """
    shapes = spec.inputs
    rows = _starts(shapes.declaration.gates_that_read("x"), shapes.rows("x"))
    blocks: dict[ops.Operation, tuple[str, int, str]] = {ops.InputHalf(name): (gates, at, "") for name, at in rows}
    blocks |= {
        ops.Input(name): (x, at, start) for name, at in _starts(shapes.inputs, map(prod, shapes.inputs.values()))
    }
    places = {}
    for value in graph.values:
        if value.op in blocks:
            array, at, base = blocks[value.op]
            base = " + ".join([*([base] if base else []), *([str(at)] if at else [])])
            places[value] = Place(array, strides_of(value.axes, graph.sizes), base)
    return places


def _starts(names: Iterable[str], counts: Iterable[int]) -> Iterable[tuple[str, int]]:
    """The offset of each block of numbers that follow one another."""
    return zip(names, accumulate(counts, initial=0), strict=False)


class _Parameters:
    """The parameters of a direction, with their axes. Rows of `weight_hh` have the axes of the output, too."""

    def __init__(self, spec: ArraySpec, step: ArrayStep) -> None:
        self.spec, shapes = spec, spec.inputs
        self._columns = [step.sizes[axis] for axis in next(iter(step.state.values()))]
        self._readers = {WEIGHT: shapes.declaration.gates_that_read("h")}
        self._readers[BIAS] = self._readers[WEIGHT]

    def __call__(self, parameter: ops.Parameter) -> Tensor:
        """A parameter, or the part of it that belongs to a gate."""
        name, gate = parameter.name, parameter.gate
        weights, gates = self.spec.weights, self.spec.inputs.gates
        if gate is None:
            return weights[name]
        if name == BIAS and BIAS not in weights:
            return weights["weight_ih"].new_zeros(gates[gate])
        tensor = self.spec.recurrent_matrix() if name == WEIGHT else weights[name]
        readers = [*self._readers.get(name, gates)]
        block = tensor.split([prod(gates[each]) for each in readers])[readers.index(gate)]
        return block.reshape((*gates[gate], *(self._columns if name == WEIGHT else ())))
