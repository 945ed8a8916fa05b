"""The graph of one step with the weights of a direction, which the emitters of C and JavaScript print.

A value that depends only on parameters is an array of numbers. A sum of matrix products and a bias, such as the
pre-activation of a gate, is one value.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glassgate.engines.lowering.step import levels_of
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.evaluate import evaluate
from glassgate.engines.symbolic.arrays.value import Value, constant, leaf
from glassgate.engines.symbolic.rewrite import in_primitives, rewrite_graph
from glassgate.engines.symbolic.values import halves_of, topological_order
from glassgate.export.network import DirectionSpec
from glassgate.export.places import Place, strides_of

Axes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fixed(ops.Leaf):
    """A value that depends only on parameters, with a unique name."""

    symbol = "fixed"


@dataclass(frozen=True, slots=True)
class Affine(ops.Op):
    """A sum of matrix products and a bias (u, v, ...), with a unique number."""

    symbol = "affine"
    number: int


class Product(NamedTuple):
    """The product of a matrix and a vector.

    Attributes:
        weight: the name of the matrix in comments, for example "W_ih".
        matrix: (rows, len(vector)), or (heads, rows / heads, len(vector) / heads).
    """

    weight: str
    matrix: np.ndarray


class Terms(NamedTuple):
    """The terms of an affine value.

    Attributes:
        products: the matrix products, one for each argument of the value.
        bias: one number per row, or None.
        is_centred: whether means over units are subtracted from the weights and the bias.
    """

    products: tuple[Product, ...]
    bias: np.ndarray | None
    is_centred: bool = False


@dataclass(frozen=True, eq=False)
class WeightedStep:
    """One step in primitive operations.

    Attributes:
        sizes: the size of each axis.
        state: the axes of each result, by name.
        states: the results by name: the new states, and other values that a target stores.
        constants: the values that depend only on parameters and that others read, with their axes. They are leaves with
            the operation `Fixed`.
        sums: the terms of each value with the operation `Affine`.
    """

    sizes: Mapping[str, int]
    state: Mapping[str, Axes]
    states: Mapping[str, Value]
    constants: Mapping[Value, np.ndarray]
    sums: Mapping[Value, Terms]

    @property
    def values(self) -> list[Value]:
        """The values that depend on rows, each after its inputs."""
        values = topological_order([*self.states.values()])
        return [value for value in values if not isinstance(value.op, Fixed | ops.Constant)]

    @property
    def vectors(self) -> set[Value]:
        """The values that matrices multiply."""
        return {vector for value in self.values if value in self.sums for vector in value.inputs}

    @property
    def weight_count(self) -> int:
        """The number of weights that a step reads."""
        sums = [self.sums[value] for value in self.values if value in self.sums]
        return sum(product.matrix.size for terms in sums for product in terms.products)

    def count(self, axes: Iterable[str]) -> int:
        """The number of elements of a value with these axes."""
        return prod(self.sizes[axis] for axis in axes)

    def number(self, value: Value) -> float | None:
        """The number that a value consists of; None for other values."""
        if isinstance(value.op, ops.Constant):
            return value.op.number
        numbers = self.constants.get(value)
        return None if numbers is None or numbers.size != 1 else float(numbers.item())

    def rewritten(
        self, rule: Callable[[Value, Value], Value | None], sums: Mapping[Value, Terms] | None = None
    ) -> "WeightedStep":
        """The step with some values replaced; see `rewrite_graph`.

        Args:
            rule: returns the replacement of a value, or None.
            sums: the terms of new affine values, to which the rule may add.
        """
        new = rewrite_graph(self.states.values(), rule)
        constants = {new[value]: numbers for value, numbers in self.constants.items() if value in new}
        kept = {new[value]: terms for value, terms in self.sums.items() if value in new}
        states = {name: new[value] for name, value in self.states.items()}
        return WeightedStep(self.sizes, self.state, states, constants, {**kept, **(sums or {})})


def weighted_step(spec: DirectionSpec, also: Mapping[str, Value] | None = None) -> WeightedStep:
    """Return the graph of the step of a direction.

    Args:
        spec: the direction.
        also: values of its step that are results, by name, in addition to the new states.
    """
    step, weights = spec.step, _Weights(spec)
    results = {**(also or {}), **dict(zip(step.state, step.states, strict=True))}
    axes = {name: value.axes for name, value in results.items()} | dict(step.state)
    primitive = in_primitives(results.values())
    values = topological_order(primitive.values())
    fixed: set[Value] = set()
    for value in values:
        is_leaf = isinstance(value.op, ops.Parameter | ops.Constant)
        is_elementwise = not isinstance(value.op, ops.Product | ops.Projection)
        if is_leaf or (value.inputs and is_elementwise and fixed.issuperset(value.inputs)):
            fixed.add(value)
    read = {arg for v in values if v not in fixed for arg in v.inputs} | {*primitive.values()}
    known = [v for v in values if v in fixed and v in read and not isinstance(v.op, ops.Constant)]
    parameters: dict[ops.Leaf, Tensor] = {
        v.op: weights.parameter(v.op)[None] for v in values if isinstance(v.op, ops.Parameter)
    }
    numbers = [n[0].numpy() for n in evaluate(step.sizes, known, parameters, like=spec.weights["weight_ih"])]
    leaves = {value: leaf(Fixed(f"{k}"), value.axes, value.name) for k, value in enumerate(known)}
    constants = {leaves[value]: array for value, array in zip(known, numbers, strict=True)}
    sums: dict[Value, Terms] = {}
    named = {value.name for value in values}
    x, merged = weights.x, _merged_sums(values, primitive.values(), fixed)

    def affine(name: str, gate: str | None, u: Value, axes: Axes) -> Value:
        matrix, bias = weights.matrix(f"weight_{name}", gate), weights.bias(f"bias_{name}", gate)
        if isinstance(u.op, Fixed | ops.Constant):  # a product of parameters
            shape = [matrix.shape[-1]] if gate is None else weights.output
            numbers = np.broadcast_to(constants[u] if u in constants else u.op.contents[0], shape)
            product = np.einsum("...ij,...j->...i", matrix, numbers.reshape(*matrix.shape[:-2], -1)).reshape(-1)
            value = leaf(Fixed(f"{name}_{gate}_{u.serial}"), axes)
            constants[value] = (product if bias is None else product + bias).reshape([sizes[axis] for axis in axes])
            return value
        is_view = isinstance(u.op, ops.Gather | ops.Merge | ops.Concatenate)
        own = u.axes if gate is None else spec.output_axes
        if u is not x and (is_view or u.axes != own):  # an array of its own
            u = Value("add", (constant(0.0, own), u), own)
        value = Value(Affine(len(sums)), (u,), axes)
        sums[value] = Terms((Product(f"W_{name}", matrix),), bias)
        return value

    def rule(value: Value, copy: Value) -> Value | None:
        match value.op:
            case _ if value in leaves:
                return leaves[value]
            case ops.Input() if value.op == x.op:
                return x
            case ops.InputHalf(gate):
                return affine("ih", gate, x, value.axes)
            case ops.RecurrentHalf(gate):
                return affine("hh", gate, copy.inputs[0], value.axes)
            case ops.Projection():
                return affine("hr", None, copy.inputs[0], value.axes)
            case "add" if value not in merged:
                copy.name = value.name or _name_of_gate(value, named)
                return copy
            case "add":
                terms = [sums[arg] for arg in copy.inputs if arg in sums]
                added = [_in_order(arg, value.axes, constants[arg]) for arg in copy.inputs if arg in constants]
                if len(terms) + len(added) < 2:
                    return None
                biases = [*(each.bias for each in terms if each.bias is not None), *added]
                vectors = tuple(u for arg in copy.inputs if arg in sums for u in arg.inputs)
                products = tuple(product for each in terms for product in each.products)
                total = Value(Affine(len(sums)), vectors, value.axes, _name_of_gate(value, named))
                sums[total] = Terms(products, sum(biases[1:], biases[0]) if biases else None)
                return total
        return None

    sizes = {**step.sizes, **weights.sizes}
    new = rewrite_graph(primitive.values(), rule)
    states = {name: new[primitive[value]] for name, value in results.items()}
    for name, value in states.items():
        value.name = value.name or f"new_{name}"
    return WeightedStep(sizes, axes, states, constants, sums)


def _name_of_gate(value: Value, named: set[str | None]) -> str | None:
    """The name of the sum of both halves of a gate."""
    halves = halves_of(value)
    if halves is None:
        return None
    ih, hh = (half.op for half in halves)
    assert isinstance(ih, ops.InputHalf)
    assert isinstance(hh, ops.RecurrentHalf)
    name = f"{hh.gate}_pre"
    if ih.name != hh.gate or name in named:
        return None
    named.add(name)
    return name


def _in_order(value: Value, axes: Axes, numbers: np.ndarray) -> np.ndarray:
    """The elements of a constant in the order of these axes."""
    return numbers.transpose([value.axes.index(axis) for axis in axes]).reshape(-1)


def _merged_sums(values: list[Value], results: Iterable[Value], fixed: set[Value]) -> set[Value]:
    """The sums of matrix products and constants that become one value. Only this sum reads each product."""
    computed = [value for value in values if value not in fixed]
    products = {v for v in computed if isinstance(v.op, ops.InputHalf | ops.Product | ops.Projection)}

    def needs_all_units(value: Value, operand: Value) -> bool:
        reads_all = isinstance(value.op, ops.Product | ops.Projection | ops.Sum)
        return reads_all and not isinstance(operand.op, ops.Leaf)

    level = levels_of(computed, lambda value: [arg for arg in value.inputs if arg not in fixed], needs_all_units)
    uses = Counter(arg for value in computed for arg in value.inputs) + Counter(results)
    merged: set[Value] = set()
    for value in computed:
        if value.op == "add" and len(value.inputs) == 2:
            parts = [arg for arg in value.inputs if arg in products or arg in merged]
            rest = [arg for arg in value.inputs if arg in fixed and not isinstance(arg.op, ops.Constant)]
            has_one_reader = all(uses[part] == 1 and level[part] == level[value] for part in parts)
            has_same_axes = all(part.axes == value.axes for part in parts)
            if parts and len(parts) + len(rest) == 2 and has_one_reader and has_same_axes:
                merged |= {value} if all({*v.axes} == {*value.axes} for v in rest) else set()
    return merged


class _Weights:
    """The parameters of a direction by gate.

    Attributes:
        x: the part of the input that `weight_ih` multiplies.
        sizes: the sizes of its axes.
        output: the shape of the output.
    """

    def __init__(self, spec: DirectionSpec) -> None:
        self.spec, self.step, self.weights = spec, spec.step, spec.weights
        first = next(iter(self.step.inputs.items()), ("x", ("features",)))
        self.x = leaf(ops.Input(first[0]), first[1], first[0])
        self.sizes = {} if self.step.inputs else {"features": self.weights["weight_ih"].shape[1]}
        self.output = [self.step.sizes[axis] for axis in spec.output_axes]

    def parameter(self, op: ops.Parameter) -> Tensor:
        """A parameter, or the part of it that belongs to a gate."""
        tensor = self.weights[op.name]
        if op.gate is None:
            return tensor
        axes = self.step.gates[op.gate]
        return self._rows(op.name, op.gate).reshape([self.step.sizes[axis] for axis in axes])

    def _rows(self, name: str, gate: str) -> Tensor:
        half = {"weight_ih": "x", "bias_ih": "x", "weight_hh": "h", "bias_hh": "h"}.get(name, "")
        gates = [each for each in self.step.gates if half in self.step.reads[each]]
        counts = [prod(self.step.sizes[axis] for axis in self.step.gates[each]) for each in gates]
        return self.weights[name].split(counts)[gates.index(gate)]

    def matrix(self, name: str, gate: str | None) -> np.ndarray:
        """The matrix of a gate, or the whole matrix; see `Product.matrix`."""
        matrix = self.weights[name] if gate is None else self._rows(name, gate)
        heads = self.spec.heads if name == "weight_hh" else 1
        return matrix.numpy() if heads == 1 else torch.stack(matrix.chunk(heads)).numpy()

    def bias(self, name: str, gate: str | None) -> np.ndarray | None:
        """The bias of a gate; None without one."""
        return None if gate is None or name not in self.weights else self._rows(name, gate).numpy()


def input_places(spec: DirectionSpec, graph: WeightedStep, array: str, start: str = "") -> dict[Value, Place]:
    """The places of the blocks of the input.

    Args:
        spec: the direction.
        graph: its step.
        array: the array with the input.
        start: the expression of the index at which the input of the step begins; "" for 0.
    """
    blocks = spec.step.inputs or {"x": ("features",)}
    starts = dict(zip(blocks, accumulate(map(graph.count, blocks.values()), initial=0), strict=False))
    places = {}
    for value in graph.values:
        if isinstance(value.op, ops.Input):
            at = starts[value.op.name]
            base = " + ".join([*([start] if start else []), *([str(at)] if at else [])])
            places[value] = Place(array, strides_of(value.axes, graph.sizes), base)
    return places
