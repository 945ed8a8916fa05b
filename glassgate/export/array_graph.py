"""The graph of one step over named axes, with the weights of a direction. Emitters of C and JavaScript read it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from torch import Tensor

from glassgate.engines.symbolic.arrays.evaluate import evaluate
from glassgate.engines.symbolic.arrays.rewrite import in_primitives, rewrite
from glassgate.engines.symbolic.arrays.value import Index, Value, index, topological_order
from glassgate.export.array_places import Place, strides_of
from glassgate.export.network import ArraySpec

Axes = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ArrayGraph:
    """One step in primitive operations, without the operation "hh": recurrent products are sums.

    Attributes:
        sizes: the size of each axis.
        state: the axes of each state.
        states: the new states, by name.
        constants: the values that depend only on parameters and that other values read, with their axes.
    """

    sizes: Mapping[str, int]
    state: Mapping[str, Axes]
    states: Mapping[str, Value]
    constants: Mapping[Value, np.ndarray]

    @cached_property
    def values(self) -> list[Value]:
        """The values that depend on rows, each after its inputs."""
        return [v for v in topological_order([*self.states.values()]) if v not in self._fixed and v.op != "constant"]

    @cached_property
    def _fixed(self) -> set[Value]:
        return fixed_values(topological_order([*self.states.values()]))


def array_graph(spec: ArraySpec) -> ArrayGraph:
    """Return the graph of the step of a direction."""
    step, sizes = spec.step, dict(spec.step.sizes)
    primitive = in_primitives(step.states)
    states = [primitive[value] for value in step.states]
    products = _Products(spec, sizes)
    expanded = rewrite(states, products.expand)
    merged = rewrite(expanded[value] for value in states)
    states = [merged[expanded[value]] for value in states]
    values = topological_order(states)
    fixed = fixed_values(values)
    read = {arg for v in values if v not in fixed for arg in v.inputs} | {*states}
    constants = [v for v in values if v in fixed and v in read and v.op != "constant"]
    leaves = {(v.op, *v.args): products.parameter(*v.args)[None] for v in values if v.op == "parameter"}
    numbers = evaluate(sizes, constants, leaves) if constants else []
    arrays = {v: n[0].numpy() for v, n in zip(constants, numbers, strict=True)}
    return ArrayGraph(sizes, step.state, dict(zip(step.state, states, strict=True)), arrays)


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
    blocks = {
        ("ih", name): (gates, at, "") for name, at in _starts(shapes.declaration.gates_that_read("x"), shapes.rows("x"))
    }
    blocks |= {
        ("input", name): (x, at, start) for name, at in _starts(shapes.inputs, map(prod, shapes.inputs.values()))
    }
    places = {}
    for leaf in graph.values:
        if leaf.op in ("ih", "input"):
            array, at, base = blocks[leaf.op, leaf.args[0]]
            base = " + ".join([*([base] if base else []), *([str(at)] if at else [])])
            places[leaf] = Place(array, strides_of(leaf.axes, graph.sizes), base)
    return places


def _starts(names: Iterable[str], counts: Iterable[int]) -> Iterable[tuple[str, int]]:
    """The offset of each block of numbers that follow one another."""
    return zip(names, accumulate(counts, initial=0), strict=False)


def fixed_values(values: list[Value]) -> set[Value]:
    """The values that depend only on parameters. Each value must come after its inputs."""
    fixed: set[Value] = set()
    for value in values:
        if value.op in ("parameter", "constant") or (value.inputs and fixed.issuperset(value.inputs)):
            fixed.add(value)
    return fixed


class _Products:
    """The recurrent products of a step as sums, and the parameters of the direction.

    Args:
        spec: the direction.
        sizes: the size of each axis, to which the axes of the columns of `weight_hh` are added.
    """

    def __init__(self, spec: ArraySpec, sizes: dict[str, int]) -> None:
        self.spec, self.sizes = spec, sizes
        self.output = next(iter(spec.step.state.values()))
        self._leaves: dict[tuple[str, str], Value] = {}
        self._rows: dict[str, Mapping[str, Tensor]] = {}

    def expand(self, value: Value, args: tuple[Any, ...]) -> Value | None:
        """A rule for `rewrite`: `W u + b` instead of "hh"."""
        if value.op != "hh":
            return None
        gate, u = args
        own, columns = self.spec.step.gates[gate], [f"{axis}_column" for axis in self.output]
        self.sizes |= {new: self.sizes[axis] for new, axis in zip(columns, self.output, strict=True)}
        renamed = {axis: Index(((new, 1),)) for axis, new in zip(self.output, columns, strict=True) if axis in u.axes}
        weight = self._leaf("weight_hh", gate, (*own, *columns))
        product = Value("mul", (weight, index(u, renamed)), weight.axes)
        result: Any = Value("sum", (product, tuple(columns)), own)
        return result + self._leaf("bias_hh", gate, own) if "bias_hh" in self.spec.weights else result

    def _leaf(self, name: str, gate: str, axes: Axes) -> Value:
        return self._leaves.setdefault((name, gate), Value("parameter", (name, gate), axes))

    def parameter(self, name: str, gate: str | None) -> Tensor:
        """A parameter with its axes, or the part of it that belongs to a gate."""
        spec, shapes = self.spec, self.spec.inputs
        if gate is None:
            return spec.weights[name]
        if name not in self._rows:
            is_recurrent = name in ("weight_hh", "bias_hh")
            names = shapes.declaration.gates_that_read("h") if is_recurrent else (*shapes.gates,)
            tensor = spec.recurrent_matrix() if name == "weight_hh" else spec.weights[name]
            blocks = tensor.split([prod(shapes.gates[each]) for each in names])
            self._rows[name] = dict(zip(names, blocks, strict=True))
        columns = [self.sizes[axis] for axis in self.output] if name == "weight_hh" else []
        return self._rows[name][gate].reshape(*shapes.gates[gate], *columns)
