"""Emits elementwise operations as ONNX nodes."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from glassgate.export.onnx_ops import Operators

_DIRECT = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "detach": "Identity", "abs": "Abs",
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "sqrt": "Sqrt", "exp": "Exp", "log": "Log",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "atan": "Atan", "sigmoid": "Sigmoid", "tanh": "Tanh", "erf": "Erf",
    "pow": "Pow", "minimum": "Min", "maximum": "Max", "where": "Where", "lt": "Less", "le": "LessOrEqual",
    "eq": "Equal", "logical_and": "And", "logical_or": "Or", "logical_not": "Not",
}  # fmt: skip
"""The ONNX operator for each operation of `symbolic.operations` that has one. `_compose` emits the others."""


def number(op: Operators, value: float, dtype: ir.DataType, name: str | None = None) -> ir.Value:
    """Emit a constant."""
    return op.constant(np.asarray(value, dtype.numpy()), name)


def elementwise(
    op: Operators, kind: str, values: Sequence[ir.Value], dtype: ir.DataType, name: str | None = None
) -> ir.Value:
    """Emit an elementwise operation.

    Args:
        op: collects the nodes.
        kind: the name of the operation in `symbolic.operations.PRIMITIVES`.
        values: the arguments, which broadcast.
        dtype: the dtype of the numbers.
        name: the name of the result.
    """
    if kind in _DIRECT:
        return op(_DIRECT[kind], *values, name=name)
    return _compose(op, kind, values, dtype, name)


def _compose(op: Operators, kind: str, values: Sequence[ir.Value], dtype: ir.DataType, name: str | None) -> ir.Value:
    """Emit an operation for which ONNX has no operator."""
    x = values[0]
    match kind:
        case "ne":
            return op("Not", op("Equal", *values), name=name)
        case "rsqrt":
            return op("Reciprocal", op("Sqrt", x), name=name)
        case "fmod":
            return op("Mod", *values, fmod=1, name=name)
        case "trunc":
            return op("Where", op("Less", x, number(op, 0.0, dtype)), op("Ceil", x), op("Floor", x), name=name)
        case "sign":  # 0 for NaN, unlike the operator Sign
            zero, one = number(op, 0.0, dtype), number(op, 1.0, dtype)
            negative = op("Where", op("Less", x, zero), op("Neg", one), zero)
            return op("Where", op("Less", zero, x), one, negative, name=name)
        case "expm1":  # 2 t / (1 - t) with t = tanh(x / 2) is accurate for small x
            half = op("Tanh", op("Mul", x, number(op, 0.5, dtype)))
            small = op("Div", op("Add", half, half), op("Sub", number(op, 1.0, dtype), half))
            return op(
                "Where",
                op("Less", x, number(op, 1.0, dtype)),
                small,
                op("Sub", op("Exp", x), number(op, 1.0, dtype)),
                name=name,
            )
        case "log1p":  # x log(u) / (u - 1) with the rounded u = 1 + x is accurate for small x
            one = number(op, 1.0, dtype)
            u = op("Add", x, one)
            near = op("Equal", u, one)
            distance = op("Where", near, one, op("Sub", u, one))
            exact = op("Div", op("Mul", x, op("Log", u)), distance)
            large = op("Less", number(op, 1e6, dtype), x)
            return op("Where", near, x, op("Where", large, op("Log", u), exact), name=name)
    raise AssertionError(f"unknown operation {kind}")
