"""The operators of kernels. They append LLVM code for numbers, vectors and masks, and compute with constants."""

import ast
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import BOOLEAN, DOUBLE, INT64, Operand, cast, is_float
from glassgate.engines.llvm_cpu.simd.vector import Lanes

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
ON_INTEGERS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.LShift: "shl",
    ast.RShift: "ashr",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
}
ON_FLOATS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
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


def binary(builder: ir.IRBuilder, operation: ast.operator, a: Operand, b: Operand) -> Operand:
    """The result of an operator of `BINARY`."""
    kind = type(operation)
    if not (isinstance(a, ir.Value) or isinstance(b, ir.Value)):
        return BINARY[kind](a, b)
    if vectors := _vectors(builder, a, b):
        return BINARY[kind](*vectors).value
    if is_float(common := common_type(a, b)) or kind is ast.Div:
        common = common if is_float(common) else DOUBLE
        return getattr(builder, ON_FLOATS[kind])(cast(builder, a, common), cast(builder, b, common))
    if kind in (ast.FloorDiv, ast.Mod):
        return _divided(builder, kind is ast.Mod, cast(builder, a, INT64), b)
    return getattr(builder, ON_INTEGERS[kind])(cast(builder, a, INT64), cast(builder, b, INT64))


def unary(builder: ir.IRBuilder, operation: ast.unaryop, x: Operand) -> Operand:
    """The result of an operator of `UNARY`."""
    if not isinstance(x, ir.Value):
        return UNARY[type(operation)](x)
    if isinstance(x.type, ir.VectorType):
        return UNARY[type(operation)](Lanes(builder, x)).value
    return builder.fneg(x) if is_float(x.type) else builder.neg(x)


def compared(builder: ir.IRBuilder, operation: ast.cmpop, a: Operand, b: Operand) -> Operand:
    """The result of an operator of `COMPARISONS`."""
    sign, compare = COMPARISONS[type(operation)]
    if not (isinstance(a, ir.Value) or isinstance(b, ir.Value)):
        return compare(a, b)
    if vectors := _vectors(builder, a, b):
        return vectors[0].compare(vectors[1], sign).value
    kind = BOOLEAN if all(isinstance(x, ir.Value) and x.type == BOOLEAN for x in (a, b)) else common_type(a, b)
    a, b = cast(builder, a, kind), cast(builder, b, kind)
    if not is_float(kind):
        return builder.icmp_signed(sign, a, b)
    return (builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered)(sign, a, b)


def common_type(*operands: Operand) -> ir.Type:
    """The type to which numbers are converted: that of a floating-point number, if there is one."""
    floats = [x.type for x in operands if isinstance(x, ir.Value) and is_float(x.type)]
    return floats[0] if floats else DOUBLE if any(isinstance(x, float) for x in operands) else INT64


def _vectors(builder: ir.IRBuilder, *operands: Operand) -> list[Lanes]:
    """The operands of an operation of vectors or masks; an empty list for numbers."""
    kinds = [x.type for x in operands if isinstance(x, ir.Value) and isinstance(x.type, ir.VectorType)]
    return [Lanes(builder, cast(builder, x, kinds[0])) for x in operands] if kinds else []


def _divided(builder: ir.IRBuilder, remainder: bool, a: ir.Value, b: Operand) -> ir.Value:
    """The quotient, rounded down, or the remainder, which has the sign of the divisor."""
    if isinstance(b, int) and b > 0 and b & (b - 1) == 0:
        return builder.and_(a, INT64(b - 1)) if remainder else builder.ashr(a, INT64(b.bit_length() - 1))
    divisor = cast(builder, b, INT64)
    rest = builder.srem(a, divisor)
    differ = builder.icmp_signed("<", builder.xor(rest, divisor), INT64(0))
    inexact = builder.and_(differ, builder.icmp_signed("!=", rest, INT64(0)))
    if remainder:
        return builder.select(inexact, builder.add(rest, divisor), rest)
    return builder.sub(builder.sdiv(a, divisor), builder.zext(inexact, INT64))
