"""Differentiates the graph of a step over named axes. The gradient is another graph over the same axes."""

import operator
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Value, constant, index, leaf, make, reduce_axes
from glassgate.engines.symbolic.operations import OPERATIONS
from glassgate.engines.symbolic.ops import Index


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of a step.

    Attributes:
        sizes: the size of each axis.
        leaves: the gradient of each leaf of the step for each row, by its operation. The gradient of a parameter is the
            sum over rows. A gradient is constant along the axes of its leaf that it lacks. It reads the values of the
            step, which a kernel may save or recompute, and the leaves `ops.Gradient`, the gradients of the new states.
        values: the gradient of each value on which the new states depend smoothly.
    """

    sizes: Mapping[str, int]
    leaves: Mapping[ops.Leaf, Value]
    values: Mapping[Value, Value]


def gradient(step: ArrayStep) -> Gradient:
    """Differentiate a step: build the gradient of each leaf from the gradients of the new states."""
    terms: defaultdict[Value, list[Value]] = defaultdict(list)
    for name, state in zip(step.state, step.states, strict=True):
        terms[state].append(leaf(ops.Gradient(name), step.state[name]))
    leaves: dict[ops.Leaf, Value] = {}
    values: dict[Value, Value] = {}
    for value in reversed(step.values):
        if value not in terms:
            continue
        d = reduce(operator.add, terms[value])
        if value.name is not None and d.name is None and not isinstance(d.op, ops.Gradient):
            d.name = f"d_{value.name}"
        values[value] = d
        if isinstance(value.op, ops.Leaf):
            leaves[value.op] = _sum_to(d, value, value, step.sizes)
        for arg, term in _terms(value, d, step.sizes):
            terms[arg].append(term)
    return Gradient(step.sizes, leaves, values)


def _terms(value: Value, d: Value, sizes: Mapping[str, int]) -> list[tuple[Value, Value]]:
    """The terms that one value adds to the gradients of its arguments."""
    if isinstance(value.op, str):
        derivative = OPERATIONS[value.op].derivative
        terms = derivative(d, value, *value.args) if derivative else (None,) * len(value.args)
        pairs = [(a, t) for a, t in zip(value.args, terms, strict=True) if isinstance(a, Value) and t is not None]
        return [(a, _sum_to(_as_value(t), a, value, sizes)) for a, t in pairs]
    if isinstance(value.op, ops.Concatenate):
        return _terms_of_parts(value, value.op, d, sizes)
    if not value.inputs:
        return []
    (x,) = value.inputs
    return [(x, _term(value, x, d, sizes))]


def _term(value: Value, x: Value, d: Value, sizes: Mapping[str, int]) -> Value:
    """The term that a value adds to the gradient of its only argument."""
    match value.op:
        case ops.Sum():
            return d
        case ops.Max(axes):
            ties = _as_value(make("where", make("eq", x, value), 1.0, 0.0))
            share: Value = d * ties / reduce_axes(ops.Sum, ties, axes, sizes)
            return share
        case ops.CumulativeSum(axis, reverse):
            full = d if axis in d.axes else d * constant(1.0, (axis,))
            return Value(ops.CumulativeSum(axis, not reverse), (full,), full.axes)
        case ops.Gather(indices):
            return _scatter(d, x, indices)
        case ops.Merge(axes, into):
            strides = [_product(sizes, axes[k + 1 :]) for k in range(len(axes))]
            return index(d, {into: Index(tuple(zip(axes, strides, strict=True)))})
        case ops.RecurrentHalf(gate):
            return Value(ops.RecurrentTranspose((gate,)), (d,), x.axes)
    raise AssertionError(f"a step has no {value.op}")


def _terms_of_parts(value: Value, op: ops.Concatenate, d: Value, sizes: Mapping[str, int]) -> list[tuple[Value, Value]]:
    terms, start = [], 0
    for each, part in zip(value.inputs, op.parts, strict=True):
        piece = index(d, {op.axis: Index(((part, 1),), start)})
        as_part = Value(ops.Gather(()), (each,), (*(a for a in value.axes if a != op.axis), part))
        terms.append((each, _sum_to(piece, each, as_part, sizes)))
        start += sizes[part]
    return terms


def _scatter(d: Value, x: Value, indices: tuple[Index, ...]) -> Value:
    """The transpose of `ops.Gather`; a renaming if each index is one whole axis."""
    if all(len(each.terms) == 1 and each.terms[0][1] == 1 and not each.offset for each in indices):
        names = [each.terms[0][0] for each in indices]
        if len(set(names)) == len(names) and not any(each.modulus for each in indices):
            pairs = zip(names, x.axes, strict=True)
            is_whole = all(axis.rstrip("'") == own.rstrip("'") for axis, own in zip(names, x.axes, strict=True))
            if is_whole:
                return index(d, {axis: Index(((own, 1),)) for axis, own in pairs if axis in d.axes})
    return Value(ops.Scatter(indices, x.axes), (d,), x.axes)


def _sum_to(term: Value, arg: Value, value: Value, sizes: Mapping[str, int]) -> Value:
    """Sum a term of the gradient of `arg` over the axes along which `arg` is constant in `value`."""
    return _as_value(reduce_axes(ops.Sum, term, [axis for axis in value.axes if axis not in arg.axes], sizes))


def _as_value(value: Value | float) -> Value:
    return value if isinstance(value, Value) else constant(value)


def _product(sizes: Mapping[str, int], axes: tuple[str, ...]) -> int:
    result = 1
    for axis in axes:
        result *= sizes[axis]
    return result
