"""Differentiates the graph of a step over named axes. The gradient is another graph over the same axes."""

import operator
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Index, Value, index, make, reduce_axes
from glassgate.engines.symbolic.operations import OPERATIONS

Key = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of a step.

    Attributes:
        sizes: the size of each axis.
        leaves: the gradient of each leaf of the step by key, such as ("state", "S"), ("ih", "k"), ("hh", "k"),
            ("parameter", "U", None) or ("input", "x"), for each row. The gradient of a parameter is the sum over rows.
            A gradient is constant along the axes of its leaf that it lacks. It reads the values of the step, which a
            kernel may save or recompute, and the leaves ("grad", name), the gradients of the new states.
        products: the argument u of each product ("hh", gate, serial), for the gradient of `weight_hh`.
    """

    sizes: Mapping[str, int]
    leaves: Mapping[Key, Value]
    products: Mapping[Key, Value]


def gradient(step: ArrayStep) -> Gradient:
    """Differentiate a step: build the gradient of each leaf from the gradients of the new states."""
    terms: defaultdict[Value, list[Value]] = defaultdict(list)
    for name, state in zip(step.state, step.states, strict=True):
        terms[state].append(Value("grad", (name,), step.state[name]))
    leaves: dict[Key, Value] = {}
    products: dict[Key, Value] = {}
    for value in reversed(step.values):
        if value not in terms:
            continue
        d = reduce(operator.add, terms[value])
        if value.name is not None and d.name is None and d.op != "grad":
            d.name = f"d_{value.name}"
        if value.op == "hh":
            key = "hh", value.label, value.serial
            leaves[key], products[key] = d, value.args[1]
        elif not value.inputs and value.op != "constant":
            leaves[value.op, *value.args] = _sum_to(d, value, value, step.sizes)
        for arg, term in _terms(value, d, step.sizes):
            terms[arg].append(term)
    return Gradient(step.sizes, leaves, products)


def _terms(value: Value, d: Value, sizes: Mapping[str, int]) -> list[tuple[Value, Value]]:
    """The terms that one value adds to the gradients of its arguments."""
    op, args = value.op, value.args
    if op in OPERATIONS:
        derivative = OPERATIONS[op].derivative
        terms = derivative(d, value, *args) if derivative else (None,) * len(args)
        pairs = [(a, t) for a, t in zip(args, terms, strict=True) if isinstance(a, Value) and t is not None]
        return [(a, _sum_to(_as_value(t), a, value, sizes)) for a, t in pairs]
    if not value.inputs:
        return []
    x = args[0]
    match op:
        case "sum":
            return [(x, d)]
        case "max":
            ties = _as_value(make("where", make("eq", x, value), 1.0, 0.0))
            return [(x, d * ties / reduce_axes("sum", ties, args[1], sizes))]
        case "cumsum":
            axis, reverse = args[1:]
            full = d if axis in d.axes else d * Value("constant", (1.0,), (axis,))
            return [(x, Value("cumsum", (full, axis, not reverse), full.axes))]
        case "index":
            return [(x, _scatter(d, x, args[1]))]
        case "merge":
            axes, new = args[1:]
            strides = [_product(sizes, axes[k + 1 :]) for k in range(len(axes))]
            return [(x, index(d, {new: Index(tuple(zip(axes, strides, strict=True)))}))]
        case "cat":
            return _cat_terms(value, d, sizes)
        case "hh":
            u = args[1]
            return [(u, Value("hh_t", (args[0], d), u.axes))]
    raise AssertionError(f"a step has no {op}")


def _cat_terms(value: Value, d: Value, sizes: Mapping[str, int]) -> list[tuple[Value, Value]]:
    *values, axis, parts = value.args
    terms, start = [], 0
    for each, part in zip(values, parts, strict=True):
        piece = index(d, {axis: Index(((part, 1),), start)})
        as_part = Value("index", (each, ()), (*(a for a in value.axes if a != axis), part))
        terms.append((each, _sum_to(piece, each, as_part, sizes)))
        start += sizes[part]
    return terms


def _scatter(d: Value, x: Value, indices: tuple[Index, ...]) -> Value:
    """The transpose of "index"; a renaming if each index is one whole axis."""
    if all(len(each.terms) == 1 and each.terms[0][1] == 1 and not each.offset for each in indices):
        names = [each.terms[0][0] for each in indices]
        if len(set(names)) == len(names) and not any(each.modulus for each in indices):
            pairs = zip(names, x.axes, strict=True)
            is_whole = all(axis.rstrip("'") == own.rstrip("'") for axis, own in zip(names, x.axes, strict=True))
            if is_whole:
                return index(d, {axis: Index(((own, 1),)) for axis, own in pairs if axis in d.axes})
    return Value("scatter", (d, indices, x.axes), x.axes)


def _sum_to(term: Value, arg: Value, value: Value, sizes: Mapping[str, int]) -> Value:
    """Sum a term of the gradient of `arg` over the axes along which `arg` is constant in `value`."""
    return _as_value(reduce_axes("sum", term, [axis for axis in value.axes if axis not in arg.axes], sizes))


def _as_value(value: Any) -> Value:
    return value if isinstance(value, Value) else Value("constant", (float(value),), ())


def _product(sizes: Mapping[str, int], axes: tuple[str, ...]) -> int:
    result = 1
    for axis in axes:
        result *= sizes[axis]
    return result
