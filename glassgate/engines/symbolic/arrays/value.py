"""Values over named axes: the nodes of the graph of a step. They broadcast by the names of their axes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from glassgate.engines.symbolic.graph import MASK_OPERATORS
from glassgate.engines.symbolic.operations import ALIASES, COMPOSED, MASKS, OPERATIONS
from glassgate.engines.symbolic.simplify import simplify
from glassgate.engines.symbolic.values import NotTraceable, Symbolic


@dataclass(frozen=True)
class Index:
    """The position along one axis of the argument of "index" or "scatter": offset + sum of factor * axis, modulo.

    Attributes:
        terms: pairs (axis, factor).
        offset: the constant term.
        modulus: the size of the axis for an index that wraps around, as in `roll`; None if it does not.
    """

    terms: tuple[tuple[str, int], ...]
    offset: int = 0
    modulus: int | None = None


@dataclass(eq=False, slots=True)
class Value(Symbolic):
    """One value of a step, for each row and each index of its axes.

    Leaves:
        ih (gate): the gate's rows of `W_ih x + b_ih`.
        state (name): the state before the step.
        parameter (name, gate or None), noise (name), input (name), constant (number).
        grad (name): in a gradient, the gradient of a new state.
    Operations:
        each name in `operations.PRIMITIVES`, and the other elementwise operations of `OPERATIONS`.
        sum (x, axes), max (x, axes): reductions over axes of x.
        cumsum (x, axis, reverse): sums along an axis from its start, or from its end if `reverse`.
        index (x, indices): the element of x at one `Index` per axis of x, over the axes that the indices contain. It
            renames an axis, slices it, selects one position, rolls or divides it.
        merge (x, axes): x with `axes`, in this order, merged into one axis, the first of `axes` varying slowest.
        cat (x, y, ..., axis, sizes): values one after the other along an axis. The part k of the axis is the axis
            `part_axis(axis, k)` of argument k, if the argument has it; else its values are constant along the axis.
        hh (gate, u): the gate's rows of `W_hh u + b_hh`; u has the axes of the output.
        hh_t (gate, d): in a gradient, `W^T d`, where W are the gate's rows of `W_hh`.
        scatter (x, indices, axes): in a gradient, the transpose of "index": zero, plus x at the indices of `axes`.

    Attributes:
        op: the name of the leaf or operation.
        args: values, numbers and names.
        axes: the axes of the value: names in the sizes of the graph. An axis that ends in ' is another index over the
            axis with the same name without it.
        name: the author's name, unique in its graph; None if the author did not name the value.
        serial: a number that increases with every new value.
    """

    op: str
    args: tuple[Any, ...]
    axes: tuple[str, ...]
    name: str | None = None
    serial: int = field(default_factory=count().__next__)

    @property
    def form(self) -> tuple[str | tuple[str, ...], ...]:
        """The operation and the axes."""
        return self.op, self.axes

    @property
    def label(self) -> str:
        """The gate or the name of a leaf or product."""
        label: str = self.args[0]
        return label

    def with_args(self, args: tuple[Any, ...]) -> "Value":
        """The same operation of other arguments, without a name."""
        return Value(self.op, args, self.axes)

    def constant_like(self, number: float) -> "Value":
        """A constant."""
        return Value("constant", (float(number),), ())

    def operation(self, op: str, *args: Any) -> Any:
        """An elementwise operation, see `make`."""
        return make(op, *args)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return elementwise_function(func.__name__, make)(*args, **(kwargs or {}))

    def __repr__(self) -> str:
        args = ", ".join(map(_argument_text, self.args))
        return f"{_reference(self)} = {self.op}({args})"


def _reference(value: Value) -> str:
    return f"{value.name or f'_{value.serial}'}[{', '.join(value.axes)}]"


def _argument_text(arg: Any) -> str:
    if isinstance(arg, Value):
        return _reference(arg)
    if isinstance(arg, tuple) and arg and isinstance(arg[0], Index):
        return f"[{', '.join(map(_index_text, arg))}]"
    return f"{arg:g}" if isinstance(arg, float) else str(arg)


def _index_text(index: Index) -> str:
    terms = [axis if factor == 1 else f"{factor} * {axis}" for axis, factor in index.terms]
    text = " + ".join([*terms, *([str(index.offset)] if index.offset or not terms else [])])
    return text if index.modulus is None else f"({text}) % {index.modulus}"


def elementwise_function(name: str, make: Any) -> Any:
    """The torch function with this name for symbolic values, from the function that makes an operation."""
    name = name[2:-2] if name.startswith("__") and name.endswith("__") else name
    name = ALIASES.get(name, name)
    if name in COMPOSED:
        return COMPOSED[name]
    if name not in OPERATIONS:
        raise NotTraceable(f"torch.{name}")
    return lambda *args: make(name, *args)


def make(op: str, *args: Any) -> Any:
    """Return a value for an elementwise operation, or a simpler value or number that is equal."""
    op = MASK_OPERATORS[op][0] if op in MASK_OPERATORS else op
    values = [arg if isinstance(arg, Value) else float(arg) for arg in args]
    if op in ("logical_and", "logical_or", "logical_not"):
        values = [v if isinstance(v, Value) and v.op in MASKS else make("ne", v, 0.0) for v in values]
    else:
        values = [as_number(v) if op != "where" or k else v for k, v in enumerate(values)]
    simple = simplify(op, *values)
    if simple is not None:
        return simple
    axes = dict.fromkeys(axis for v in values if isinstance(v, Value) for axis in v.axes)
    return Value(op, tuple(values), tuple(axes))


def as_number(value: Any) -> Any:
    """The value itself, or a mask converted to ones and zeros."""
    return make("where", value, 1.0, 0.0) if isinstance(value, Value) and value.op in MASKS else value


def reduce_axes(op: str, x: Value, axes: Iterable[str], sizes: Mapping[str, int]) -> Any:
    """Return "sum" or "max" over axes. Along an axis that x lacks, x is constant."""
    axes = tuple(axes)
    own = tuple(axis for axis in x.axes if axis in axes)
    missing = [sizes[axis] for axis in axes if axis not in x.axes]
    factor = float(torch.tensor(missing).prod()) if missing and op == "sum" else 1.0
    reduced = Value(op, (x, own), tuple(axis for axis in x.axes if axis not in own)) if own else x
    return reduced * factor


def index(x: Value, indices: Mapping[str, Index]) -> Value:
    """Return "index" with these indices; the other axes of x stay."""
    complete = [indices.get(axis, Index(((axis, 1),))) for axis in x.axes]
    axes = dict.fromkeys(axis for each in complete for axis, _ in each.terms)
    if complete == [Index(((axis, 1),)) for axis in x.axes]:
        return x
    return Value("index", (x, tuple(complete)), tuple(axes))


def rename(x: Value, old: str, new: str) -> Value:
    """The same value over another axis of the same size."""
    return index(x, {old: Index(((new, 1),))}) if old in x.axes and old != new else x


def part_axis(axis: str, k: int) -> str:
    """The axis of part k of the result of "cat"."""
    return f"{axis}_{k}"
