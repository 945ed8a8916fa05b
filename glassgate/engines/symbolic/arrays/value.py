"""Values over named axes: the nodes of the graph of a step. They broadcast by the names of their axes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.graph import MASK_OPERATORS
from glassgate.engines.symbolic.operations import ALIASES, COMPOSED, MASKS, OPERATIONS
from glassgate.engines.symbolic.ops import Index
from glassgate.engines.symbolic.simplify import simplify
from glassgate.engines.symbolic.values import NotTraceable, Symbolic


@dataclass(eq=False, slots=True)
class Value(Symbolic):
    """One value of a step, for each row and each index of its axes.

    Attributes:
        op: the name of an elementwise operation, or an operation of `ops.py`.
        args: values and numbers.
        axes: the axes of the value: names in the sizes of the graph. An axis that ends in ' is another index over the
            axis with the same name without it.
        name: the author's name, unique in its graph; None if the author did not name the value.
        serial: a number that increases with every new value.
    """

    op: ops.Operation
    args: "tuple[Value | float, ...]"
    axes: tuple[str, ...]
    name: str | None = None
    serial: int = field(default_factory=count().__next__)

    @property
    def form(self) -> tuple[ops.Operation | tuple[str, ...], ...]:
        """The operation and the axes."""
        return self.op, self.axes

    def with_args(self, args: "tuple[Value | float, ...]") -> "Value":
        """The same operation of other arguments, without a name."""
        return Value(self.op, args, self.axes)

    def constant_like(self, number: float) -> "Value":
        """A constant."""
        return constant(number)

    def operation(self, op: str, *args: Any) -> Any:
        """An elementwise operation, see `make`."""
        return make(op, *args)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return elementwise_function(func.__name__, make)(*args, **(kwargs or {}))

    def __repr__(self) -> str:
        op, own = (self.op, ()) if isinstance(self.op, str) else (self.op.symbol, self.op.contents)
        args = [_reference(arg) if isinstance(arg, Value) else f"{arg:g}" for arg in self.args]
        return f"{_reference(self)} = {op}({', '.join([*args, *map(_text, own)])})"


def constant(number: float, axes: tuple[str, ...] = ()) -> Value:
    """A number."""
    return Value(ops.Constant(float(number)), (), axes)


def leaf(op: ops.Leaf, axes: tuple[str, ...], name: str | None = None) -> Value:
    """A value from outside of the step."""
    return Value(op, (), axes, name)


def _reference(value: Value) -> str:
    return f"{value.name or f'_{value.serial}'}[{', '.join(value.axes)}]"


def _text(part: object) -> str:
    if isinstance(part, tuple) and part and isinstance(part[0], Index):
        return f"[{', '.join(map(_index_text, part))}]"
    return f"{part:g}" if isinstance(part, float) else str(part)


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


def reduce_axes(op: type[ops.Sum | ops.Max], x: Value, axes: Iterable[str], sizes: Mapping[str, int]) -> Any:
    """Return the sum or the maximum over axes. Along an axis that x lacks, x is constant."""
    axes = tuple(axes)
    own = tuple(axis for axis in x.axes if axis in axes)
    missing = [sizes[axis] for axis in axes if axis not in x.axes]
    factor = float(torch.tensor(missing).prod()) if missing and op is ops.Sum else 1.0
    reduced = Value(op(own), (x,), tuple(axis for axis in x.axes if axis not in own)) if own else x
    return reduced * factor


def index(x: Value, indices: Mapping[str, Index]) -> Value:
    """Return the elements at these indices; the other axes of x stay."""
    complete = [indices.get(axis, Index(((axis, 1),))) for axis in x.axes]
    axes = dict.fromkeys(axis for each in complete for axis, _ in each.terms)
    if complete == [Index(((axis, 1),)) for axis in x.axes]:
        return x
    return Value(ops.Gather(tuple(complete)), (x,), tuple(axes))


def rename(x: Value, old: str, new: str) -> Value:
    """The same value over another axis of the same size."""
    return index(x, {old: Index(((new, 1),))}) if old in x.axes and old != new else x


def part_axis(axis: str, k: int) -> str:
    """The axis of part k of a concatenation."""
    return f"{axis}_{k}"
