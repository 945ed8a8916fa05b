"""Infers the type of an operation's result from the types of its arguments."""

from collections.abc import Collection, Iterable

from glassgate.engines.lowering.ir import (
    Axes,
    Block,
    Broadcast,
    Constant,
    Contract,
    Elementwise,
    Operation,
    Reshape,
    Shift,
    Size,
    Stack,
    Sum,
    Take,
    Type,
    Value,
)
from glassgate.engines.symbolic.operations import ARITY, MASKS

_BOOLEAN = {"where": (True, False, False), "logical_not": (True,), "logical_and": (True, True)}
_BOOLEAN["logical_or"] = _BOOLEAN["logical_and"]
"""For each operation that takes masks, whether each argument is a mask."""


class Invalid(ValueError):
    """An invalid operation; the message has the reason."""


def result_type(operation: Operation, axes: Axes) -> Type:
    """The type of the result.

    Raises:
        Invalid: axes or element types do not fit.
    """
    match operation:
        case Elementwise(op, args):
            return _elementwise(op, args, axes)
        case Contract(a, b, over):
            _floats(a, b)
            union = {*a.type.axes, *b.type.axes}
            _contained(over, axes.sorted(union))
            return Type(axes.sorted(union - {*over}))
        case Sum(x, over):
            _floats(x)
            _contained(over, x.type.axes)
            return Type(axes.sorted({*x.type.axes} - {*over}))
        case Constant():
            return Type()
        case Size(axis):
            _contained((axis,), axes)
            return Type()
        case Block(x, axis, index):
            _indices(x, axis, (index,), axes)
            return Type(axes.sorted({*x.type.axes} - {axis}), x.type.dtype)
        case Take(x, axis, indices, to):
            _indices(x, axis, indices, axes)
            _contained((to,), axes)
            if axes.number(to) != len(indices):
                raise Invalid(f"axis {to} must have the extent {len(indices)} of the indices, got {axes.number(to)}")
            return Type(_replaced(x, axis, to, axes), x.type.dtype)
        case Stack(values, axis):
            _contained((axis,), axes)
            if axes.number(axis) != len(values) or not values:
                raise Invalid(f"axis {axis} must have the extent {len(values)} of the values, got {axes.number(axis)}")
            if len({v.type for v in values}) > 1 or axis in values[0].type.axes:
                raise Invalid(f"values must have one type without {axis}, got {_types(values)}")
            return Type(axes.sorted({*values[0].type.axes, axis}), values[0].type.dtype)
        case Reshape(x, to):
            _contained(to, axes)
            factors, new_factors = ([f for name in names for f in axes.factors(name)] for names in (x.type.axes, to))
            if factors != new_factors or to != axes.sorted({*to}):
                raise Invalid(f"{list(to)} must have the factors {factors} of {list(x.type.axes)}, got {new_factors}")
            return Type(to, x.type.dtype)
        case Broadcast(x, to):
            _contained(to, axes)
            if not {*x.type.axes} <= {*to} or to != axes.sorted({*to}):
                raise Invalid(f"{list(to)} must contain {list(x.type.axes)}, in the order of the pass")
            return Type(to, x.type.dtype)
        case Shift(x, first, axis, _, lengths):
            _contained((axis,), x.type.axes)
            of_step = Type(axes.sorted({*x.type.axes} - {axis}), x.type.dtype)
            if first.type != of_step:
                raise Invalid(f"`first` must have the type {of_step} of one step, got {first.type}")
            if lengths is not None:
                check_lengths(lengths, x)
            return x.type
    raise Invalid(f"unknown operation {type(operation).__name__}")


def check_lengths(lengths: Value, of: Value) -> None:
    """Check that lengths have one number for each row of a value.

    Raises:
        Invalid: they do not.
    """
    if lengths.type.dtype != "int" or len(lengths.type.axes) != 1 or not {*lengths.type.axes} <= {*of.type.axes}:
        raise Invalid(f"lengths must be int[rows] for rows of {of.name} {of.type}, got {lengths.type}")


def _elementwise(op: str, args: tuple[Value | float, ...], axes: Axes) -> Type:
    if op not in ARITY:
        raise Invalid(f"unknown operation {op!r}")
    if len(args) != ARITY[op]:
        raise Invalid(f"{op} takes {ARITY[op]} arguments, got {len(args)}")
    masks = _BOOLEAN.get(op, (False,) * len(args))
    for arg, mask in zip(args, masks, strict=True):
        dtype = arg.type.dtype if isinstance(arg, Value) else "float"
        expected = "bool" if mask else "float"
        if dtype != expected:
            name = arg.name if isinstance(arg, Value) else arg
            raise Invalid(f"{op} expects an argument of type {expected}, and {name} is {dtype}")
    union = {axis for arg in args if isinstance(arg, Value) for axis in arg.type.axes}
    return Type(axes.sorted(union), "bool" if op in MASKS else "float")


def _replaced(x: Value, axis: str, to: str, axes: Axes) -> tuple[str, ...]:
    replaced = tuple(to if name == axis else name for name in x.type.axes)
    if replaced != axes.sorted({*replaced}):
        raise Invalid(f"{to} must have the position of {axis} in the order of the axes, got {list(replaced)}")
    return replaced


def _indices(x: Value, axis: str, indices: tuple[int, ...], axes: Axes) -> None:
    _contained((axis,), x.type.axes)
    extent = axes.number(axis)
    if extent is None or not all(0 <= k < extent for k in indices):
        raise Invalid(f"indices {list(indices)} must be inside axis {axis} of extent {extent}")


def _contained(names: Iterable[str], among: Collection[str]) -> None:
    for name in names:
        if name not in among:
            raise Invalid(f"axis {name} is not among {list(among)}")


def _floats(*values: Value) -> None:
    for value in values:
        if value.type.dtype != "float":
            raise Invalid(f"sums expect float, and {value.name} is {value.type.dtype}")


def _types(values: tuple[Value, ...]) -> str:
    return ", ".join(f"{v.name} {v.type}" for v in values)
