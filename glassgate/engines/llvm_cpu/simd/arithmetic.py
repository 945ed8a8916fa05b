"""The operators of kernels. They append LLVM code for numbers, vectors and masks, and evaluate constant expressions."""

import ast
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import BOOLEAN, DOUBLE, INT64, Operand, cast, is_float
from glassgate.engines.llvm_cpu.simd.vector import Vector

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
INTEGER_INSTRUCTIONS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.LShift: "shl",
    ast.RShift: "ashr",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
}
FLOAT_INSTRUCTIONS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}
COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}


def apply_binary(builder: ir.IRBuilder, operation: ast.operator, a: Operand, b: Operand) -> Operand:
    """Return the result of an operator of `BINARY`."""
    kind = type(operation)
    if not (isinstance(a, ir.Value) or isinstance(b, ir.Value)):
        return BINARY[kind](a, b)
    if vectors := _as_vectors(builder, a, b):
        return BINARY[kind](*vectors).value
    operand_type = common_type(a, b)
    if kind is ast.Div and not is_float(operand_type):
        operand_type = DOUBLE
    if is_float(operand_type):
        return getattr(builder, FLOAT_INSTRUCTIONS[kind])(
            cast(builder, a, operand_type), cast(builder, b, operand_type)
        )
    if kind in (ast.FloorDiv, ast.Mod):
        return _floor_divide(builder, kind is ast.Mod, cast(builder, a, INT64), b)
    return getattr(builder, INTEGER_INSTRUCTIONS[kind])(cast(builder, a, INT64), cast(builder, b, INT64))


def apply_unary(builder: ir.IRBuilder, operation: ast.unaryop, x: Operand) -> Operand:
    """Return the result of an operator of `UNARY`."""
    if not isinstance(x, ir.Value):
        return UNARY[type(operation)](x)
    if isinstance(x.type, ir.VectorType):
        return UNARY[type(operation)](Vector(builder, x)).value
    return builder.fneg(x) if is_float(x.type) else builder.neg(x)


def apply_comparison(builder: ir.IRBuilder, operation: ast.cmpop, a: Operand, b: Operand) -> Operand:
    """Return the result of an operator of `COMPARISONS`."""
    symbol, compare = COMPARISONS[type(operation)]
    if not (isinstance(a, ir.Value) or isinstance(b, ir.Value)):
        return compare(a, b)
    if vectors := _as_vectors(builder, a, b):
        return vectors[0].compare(vectors[1], symbol).value
    both_boolean = all(isinstance(x, ir.Value) and x.type == BOOLEAN for x in (a, b))
    operand_type = BOOLEAN if both_boolean else common_type(a, b)
    a, b = cast(builder, a, operand_type), cast(builder, b, operand_type)
    if not is_float(operand_type):
        return builder.icmp_signed(symbol, a, b)
    return (builder.fcmp_unordered if symbol == "!=" else builder.fcmp_ordered)(symbol, a, b)


def common_type(*operands: Operand) -> ir.Type:
    """Return the type to which numbers are converted: floating-point if one of them is, otherwise int64."""
    floats = [x.type for x in operands if isinstance(x, ir.Value) and is_float(x.type)]
    return floats[0] if floats else DOUBLE if any(isinstance(x, float) for x in operands) else INT64


def _as_vectors(builder: ir.IRBuilder, *operands: Operand) -> list[Vector]:
    """Return the operands as vectors or masks of one type; an empty list if none of them is a vector or a mask."""
    types = [x.type for x in operands if isinstance(x, ir.Value) and isinstance(x.type, ir.VectorType)]
    return [Vector(builder, cast(builder, x, types[0])) for x in operands] if types else []


def _floor_divide(builder: ir.IRBuilder, remainder: bool, a: ir.Value, b: Operand) -> ir.Value:
    """Return the quotient, rounded down, or its `remainder`, which has the sign of `b` as in Python."""
    if isinstance(b, int) and b > 0 and b & (b - 1) == 0:
        return builder.and_(a, INT64(b - 1)) if remainder else builder.ashr(a, INT64(b.bit_length() - 1))
    divisor = cast(builder, b, INT64)
    rest = builder.srem(a, divisor)
    signs_differ = builder.icmp_signed("<", builder.xor(rest, divisor), INT64(0))
    rounded_up = builder.and_(signs_differ, builder.icmp_signed("!=", rest, INT64(0)))
    if remainder:
        return builder.select(rounded_up, builder.add(rest, divisor), rest)
    return builder.sub(builder.sdiv(a, divisor), builder.zext(rounded_up, INT64))
