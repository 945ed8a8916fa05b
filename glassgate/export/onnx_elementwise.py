"""Emits elementwise operations as ONNX nodes."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from glassgate.engines.lowering.mathematics import decompose
from glassgate.export.onnx_ops import Operators

_DIRECT = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "detach": "Identity", "abs": "Abs",
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "sqrt": "Sqrt", "exp": "Exp", "log": "Log",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "atan": "Atan", "sigmoid": "Sigmoid", "tanh": "Tanh", "erf": "Erf",
    "pow": "Pow", "minimum": "Min", "maximum": "Max", "where": "Where", "lt": "Less", "le": "LessOrEqual",
    "eq": "Equal", "logical_and": "And", "logical_or": "Or", "logical_not": "Not", "fmod": "Mod",
}  # fmt: skip
"""The ONNX operator for each operation of `symbolic.operations` that has one."""
_ATTRIBUTES = {"fmod": {"fmod": 1}}
_ONLY_FLOAT = {"tan", "atan", "erf"}
"""The operators that ONNX Runtime does not implement in float64."""


def number(op: Operators, value: float, dtype: ir.DataType) -> ir.Value:
    """Emit a constant."""
    return op.constant(np.asarray(value, dtype.numpy()))


def elementwise(
    op: Operators, kind: str, values: Sequence[ir.Value | float], dtype: ir.DataType, name: str | None = None
) -> ir.Value:
    """Emit an elementwise operation. Those without an operator are decomposed.

    Args:
        op: collects the nodes.
        kind: the name of the operation in `symbolic.operations.PRIMITIVES`.
        values: the arguments, which broadcast.
        dtype: the dtype of the numbers.
        name: the name of the result.
    """
    inputs = [value if isinstance(value, ir.Value) else number(op, value, dtype) for value in values]
    if kind in _DIRECT and not (kind in _ONLY_FLOAT and dtype == ir.DataType.DOUBLE):
        return op(_DIRECT[kind], *inputs, name=name, **_ATTRIBUTES.get(kind, {}))

    def apply(part: str, arguments: list[ir.Value | float], is_last: bool) -> ir.Value:
        return elementwise(op, part, arguments, dtype, name if is_last else None)

    return decompose(kind, inputs, apply)
