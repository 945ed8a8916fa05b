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

_MASK_ARGUMENTS = {"where": (True, False, False), "logical_not": (True,), "logical_and": (True, True)}
_MASK_ARGUMENTS["logical_or"] = _MASK_ARGUMENTS["logical_and"]
"""For each operation that takes masks, whether each argument is a mask."""


class Invalid(ValueError):
    """An operation is invalid. The message states the reason."""


def result_type(operation: Operation, axes: Axes) -> Type:
    """Return the type of the result of an operation.

    Raises:
        Invalid: the axes or dtypes of the arguments do not fit.
    """
    match operation:
        case Elementwise(op, args):
            return _elementwise(op, args, axes)
        case Contract(a, b, over):
            _require_floats(a, b)
            union = {*a.type.axes, *b.type.axes}
            _require_axes(over, axes.sorted(union))
            return Type(axes.sorted(union - {*over}))
        case Sum(x, over):
            _require_floats(x)
            _require_axes(over, x.type.axes)
            return Type(axes.sorted({*x.type.axes} - {*over}))
        case Constant():
            return Type()
        case Size(axis):
            _require_axes((axis,), axes)
            return Type()
        case Block(x, axis, index):
            _require_indices(x, axis, (index,), axes)
            return Type(axes.sorted({*x.type.axes} - {axis}), x.type.dtype)
        case Take(x, axis, indices, to):
            _require_indices(x, axis, indices, axes)
            _require_axes((to,), axes)
            if (extent := axes.constant_extent(to)) != len(indices):
                raise Invalid(f"axis {to} must have the extent {len(indices)} of the indices, got {extent}")
            return Type(_replace_axis(x, axis, to, axes), x.type.dtype)
        case Stack(values, axis):
            _require_axes((axis,), axes)
            if (extent := axes.constant_extent(axis)) != len(values) or not values:
                raise Invalid(f"axis {axis} must have the extent {len(values)} of the values, got {extent}")
            if len({v.type for v in values}) > 1 or axis in values[0].type.axes:
                raise Invalid(f"values must have equal types without axis {axis}, got {_format_types(values)}")
            return Type(axes.sorted({*values[0].type.axes, axis}), values[0].type.dtype)
        case Reshape(x, to):
            _require_axes(to, axes)
            factors, new_factors = ([f for name in names for f in axes.factors(name)] for names in (x.type.axes, to))
            if factors != new_factors or to != axes.sorted({*to}):
                raise Invalid(f"{list(to)} must have the factors {factors} of {list(x.type.axes)}, got {new_factors}")
            return Type(to, x.type.dtype)
        case Broadcast(x, to):
            _require_axes(to, axes)
            if not {*x.type.axes} <= {*to} or to != axes.sorted({*to}):
                raise Invalid(f"{list(to)} must contain {list(x.type.axes)}, in the order of the pass")
            return Type(to, x.type.dtype)
        case Shift(x, first, axis, _, lengths):
            _require_axes((axis,), x.type.axes)
            step_type = Type(axes.sorted({*x.type.axes} - {axis}), x.type.dtype)
            if first.type != step_type:
                raise Invalid(f"`first` must have the type {step_type} of one step, got {first.type}")
            if lengths is not None:
                check_lengths(lengths, x)
            return x.type
    raise Invalid(f"unknown operation {type(operation).__name__}")


def check_lengths(lengths: Value, value: Value) -> None:
    """Check that lengths contain one integer for each row of a value.

    Raises:
        Invalid: lengths have another dtype or other axes.
    """
    if lengths.type.dtype != "int" or len(lengths.type.axes) != 1 or not {*lengths.type.axes} <= {*value.type.axes}:
        raise Invalid(f"lengths must be int[rows] for rows of {value.name} {value.type}, got {lengths.type}")


def _elementwise(op: str, args: tuple[Value | float, ...], axes: Axes) -> Type:
    if op not in ARITY:
        raise Invalid(f"unknown operation {op!r}")
    if len(args) != ARITY[op]:
        raise Invalid(f"{op} takes {ARITY[op]} arguments, got {len(args)}")
    are_masks = _MASK_ARGUMENTS.get(op, (False,) * len(args))
    for arg, is_mask in zip(args, are_masks, strict=True):
        dtype = arg.type.dtype if isinstance(arg, Value) else "float"
        expected = "bool" if is_mask else "float"
        if dtype != expected:
            name = arg.name if isinstance(arg, Value) else arg
            raise Invalid(f"{op} expects an argument of type {expected}, and {name} is {dtype}")
    union = {axis for arg in args if isinstance(arg, Value) for axis in arg.type.axes}
    return Type(axes.sorted(union), "bool" if op in MASKS else "float")


def _replace_axis(x: Value, axis: str, to: str, axes: Axes) -> tuple[str, ...]:
    replaced = tuple(to if name == axis else name for name in x.type.axes)
    if replaced != axes.sorted({*replaced}):
        raise Invalid(f"{to} must have the position of {axis} in the order of the axes, got {list(replaced)}")
    return replaced


def _require_indices(x: Value, axis: str, indices: tuple[int, ...], axes: Axes) -> None:
    _require_axes((axis,), x.type.axes)
    extent = axes.constant_extent(axis)
    if extent is None or not all(0 <= k < extent for k in indices):
        raise Invalid(f"indices {list(indices)} must be inside axis {axis} of extent {extent}")


def _require_axes(names: Iterable[str], among: Collection[str]) -> None:
    for name in names:
        if name not in among:
            raise Invalid(f"axis {name} is not among {list(among)}")


def _require_floats(*values: Value) -> None:
    for value in values:
        if value.type.dtype != "float":
            raise Invalid(f"sums expect float, and {value.name} is {value.type.dtype}")


def _format_types(values: tuple[Value, ...]) -> str:
    return ", ".join(f"{v.name} {v.type}" for v in values)
