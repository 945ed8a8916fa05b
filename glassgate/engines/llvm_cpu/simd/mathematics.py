"""The mathematical functions of kernels, for vectors. NaN and infinity are handled as in torch."""

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from glassgate.engines.llvm_cpu.dialect import FUNCTION_NAMES
from glassgate.engines.llvm_cpu.simd.instructions import INT16, INT32, call
from glassgate.engines.llvm_cpu.simd.vector import Vector, VectorFunction
from glassgate.engines.lowering.mathematics import DECOMPOSED, decompose

FUNCTIONS: dict[str, VectorFunction] = {}
"""The functions by their names in kernels."""
MAX_REMAINDER = 0.3467
"""Slightly more than ln 2 / 2, the largest remainder that `_reduce_argument` returns."""
TANH_NUMERATOR = 0.999999985, 0.134004544, 0.00351872942, 2.09935921e-05, 1.38972992e-08
TANH_DENOMINATOR = 1.0, 0.467337746, 0.0259648385, 0.000332362407, 7.99639113e-07
"""Coefficients of polynomials in x^2. x times their quotient is tanh(x) within 2e-8 for |x| <= 8.7.

For larger |x|, tanh(x) rounds to 1 or -1.
"""


def _register(code: Callable[..., Vector]) -> Callable[..., Vector]:
    """Register a function under its name in kernels."""
    FUNCTIONS[code.__name__] = VectorFunction(code)
    return code


@cache
def economize(series: Callable[[int], float], radius: float, degree: int) -> tuple[float, ...]:
    """Compute the coefficients of a polynomial that approximates a power series for |x| <= radius.

    Args:
        series: returns the coefficient of x^k.
        radius: the largest |x|.
        degree: the degree of the polynomial, to which the series is reduced with Chebyshev polynomials.
    """
    scaled = np.array([series(k) * radius**k for k in range(degree + 12)])
    truncated = np.polynomial.chebyshev.cheb2poly(np.polynomial.chebyshev.poly2cheb(scaled)[: degree + 1])
    return tuple(float(c) / radius**k for k, c in enumerate(truncated))


def horner(x: Vector, coefficients: Sequence[float]) -> Vector:
    """Compute a polynomial from its coefficients, in ascending order. Horner's rule needs the fewest instructions."""
    *rest, last = coefficients
    value = x.broadcast(last)
    for coefficient in reversed(rest):
        value = value.fma(x, coefficient)
    return value


def horner_series(x: Vector, series: Callable[[int], float], radius: float, degree: int) -> Vector:
    """Compute a power series, approximated by `economize`, with Horner's rule."""
    return horner(x, economize(series, radius, degree))


def estrin_series(x: Vector, series: Callable[[int], float], radius: float, degree: int) -> Vector:
    """Compute the same as `horner_series`, with Estrin's scheme: chains of dependent operations are shorter."""
    terms = [x.broadcast(c) for c in economize(series, radius, degree)]
    while len(terms) > 1:
        odd = terms[len(terms) // 2 * 2 :]
        terms = [b.fma(x, a) for a, b in zip(terms[::2], terms[1::2], strict=False)] + odd
        x = x * x
    return terms[0]


def _clamp(x: Vector, low: float, high: float) -> Vector:
    """Clamp to a range. NaN stays NaN, because comparisons with NaN are false."""
    x = x.compare(high, ">").where(x.broadcast(high), x)
    return x.compare(low, "<").where(x.broadcast(low), x)


def _expm1_coefficient(k: int) -> float:
    """Return the coefficient of x^k in (e^x - 1 - x) / x^2."""
    return 1.0 / math.factorial(k + 2)


def _exp_coefficient(k: int) -> float:
    return 1.0 / math.factorial(k)


def _reduce_argument(x: Vector, sign: float = 1.0, decrement: int = 0) -> tuple[Vector, Vector]:
    """Split the argument of exp: sign * x = n ln 2 + r, with an integer n and |r| <= ln 2 / 2.

    Returns r and 2^(n - decrement), which must be a normal number.
    """
    mantissa, bias = (23, 127) if x.bits == 32 else (52, 1023)
    # The low bits of `shifted` are n + bias - decrement, the biased exponent of 2^(n - decrement).
    shift = 1.5 * 2.0**mantissa + bias - decrement
    high, low = _log_of_two(x)
    shifted = x.fma(sign / math.log(2.0), shift)
    n = shifted - shift
    r = n.fma(-low, n.fma(-high, x if sign > 0 else -x))
    return r, shifted.as_bits().integer_op(mantissa, "shl").as_float(x)


def _expm1_of_remainder(r: Vector) -> Vector:
    """Compute e^r - 1 for |r| <= ln 2 / 2."""
    return (r * r).fma(estrin_series(r, _expm1_coefficient, MAX_REMAINDER, 4 if r.bits == 32 else 10), r)


def _log_of_two(x: Vector) -> tuple[float, float]:
    """Return ln 2 as a sum of two numbers. The first has so few bits that its product with an exponent n is exact."""
    return (0.693359375, -2.12194440054690583e-4) if x.bits == 32 else (0.69314718036912382, 1.90821492927058770e-10)


def _exp_range(x: Vector) -> tuple[float, float]:
    """Return the range of arguments for which exp is neither infinite nor denormal."""
    return (-86.9, 88.72283) if x.bits == 32 else (-707.7, 709.782712893384)


@_register
def exp(x: Vector) -> Vector:
    """Compute e^x."""
    low, high = _exp_range(x)
    r, half_scale = _reduce_argument(_clamp(x, low, high), decrement=1)
    value = _expm1_of_remainder(r).fma(half_scale, half_scale) * 2.0
    value = x.compare(high, ">").where(x.broadcast(math.inf), value)
    return x.compare(low, "<").where(x.broadcast(0.0), value)


@_register
def expm1(x: Vector) -> Vector:
    """Compute e^x - 1, accurate near zero."""
    _, high = _exp_range(x)
    value = _expm1(_clamp(x, -40.0, high - 0.7))
    value = x.compare(high - 0.7, ">").where(exp(x), value)
    return x.compare(0.0, "==").where(x, value)  # keeps the sign of zero


def _expm1(x: Vector) -> Vector:
    r, scale = _reduce_argument(x)
    return _expm1_of_remainder(r).fma(scale, scale - 1.0)


def _divide(a: Vector | float, b: Vector) -> Vector:
    """Compute a / b, if possible without the slow division instruction. b and 1 / b must be normal numbers or NaN."""
    if b.bits == 32 and b.type.count == 16 and llvm.get_host_cpu_features().get("avx512f"):
        reciprocal = _approximate_reciprocal(b)
        reciprocal = reciprocal.fma(-b.fma(reciprocal, -1.0), reciprocal)
        value = reciprocal * a
        return (-b).fma(value, a).fma(reciprocal, value) if isinstance(a, Vector) else value
    return a / b


def _approximate_reciprocal(b: Vector) -> Vector:
    """Compute 1 / b with 14 correct bits."""
    operands = b.value, b.broadcast(0.0).value, INT16(-1)
    return Vector(b.builder, call(b.builder, "llvm.x86.avx512.rcp14.ps.512", b.type, *operands))


@_register
def sigmoid(x: Vector) -> Vector:
    """Compute 1 / (1 + e^-x), with zero for results that are not normal."""
    limit, degree = (87.0, 6) if x.bits == 32 else (708.0, 12)
    r, scale = _reduce_argument(x.compare(limit, ">").where(x.broadcast(limit), x), sign=-1.0)
    value = _divide(1.0, horner_series(r, _exp_coefficient, MAX_REMAINDER, degree).fma(scale, 1.0))
    return x.compare(-limit, "<").where(x.broadcast(0.0), value)


@_register
def tanh(x: Vector) -> Vector:
    """Compute tanh(x), accurate near zero. float32: a quotient of polynomials; float64: computed from e^(2x) - 1."""
    if x.bits == 64:
        expm1_of_2x = _expm1(_clamp(x + x, -40.0, 40.0))
        return _divide(expm1_of_2x, expm1_of_2x + 2.0)
    x = _clamp(x, -8.7, 8.7)
    square = x * x
    return _clamp(_divide(x * horner(square, TANH_NUMERATOR), horner(square, TANH_DENOMINATOR)), -1.0, 1.0)


@_register
def sqrt(x: Vector) -> Vector:
    """Compute the square root."""
    return x.call("llvm.sqrt")


@_register
def absolute(x: Vector) -> Vector:
    """Compute |x|."""
    return x.call("llvm.fabs")


def _register_rounding(name: str, instruction: str) -> None:
    def code(x: Vector) -> Vector:
        return x.call(instruction)

    code.__name__ = name
    _register(code)


for _name, _instruction in (
    ("floor", "llvm.floor"),
    ("ceil", "llvm.ceil"),
    ("round_even", "llvm.rint"),
    ("trunc", "llvm.trunc"),
):
    _register_rounding(_name, _instruction)


@_register
def where(mask: Vector, a: Vector, b: Vector) -> Vector:
    """Return `a` where the mask is true, `b` elsewhere."""
    return mask.where(a, b)


def _atanh_coefficient(k: int) -> float:
    """Return the coefficient of s^(2k) in (2 atanh(s) - 2s) / s^3."""
    return 2.0 / (2 * k + 3)


@_register
def log(x: Vector) -> Vector:
    """Compute the natural logarithm. The logarithm of the mantissa m is 2 atanh((m - 1) / (m + 1))."""
    mantissa, bias, degree = (23, 127, 3) if x.bits == 32 else (52, 1023, 8)
    tiny = x.compare(2.0 ** (1 - bias), "<")
    bits = tiny.where(x * 2.0 ** (mantissa + 1), x).as_bits()
    exponent = bits.integer_op(_sqrt_half_bits(x), "sub").integer_op(mantissa, "ashr")
    m = bits.integer_op(exponent.integer_op(mantissa, "shl"), "sub").as_float(x)
    n = _to_float(exponent, x) - tiny.where(x.broadcast(mantissa + 1.0), 0.0)
    f = m - 1.0
    s = f / (f + 2.0)
    w = s * s
    high, low = _log_of_two(x)
    value = n.fma(high, f - s.fma(f - w * horner_series(w, _atanh_coefficient, 0.0295, degree), n * -low))
    value = x.compare(math.inf, "==").where(x, value)
    value = x.compare(0.0, "==").where(x.broadcast(-math.inf), value)
    return x.compare(0.0, "<").where(x.broadcast(math.nan), x.compare(x, "!=").where(x, value))


def _sqrt_half_bits(x: Vector) -> int:
    """Return the bits of sqrt(1/2). `log` scales its argument by a power of two to between sqrt(1/2) and sqrt(2)."""
    return int(np.float32(math.sqrt(0.5)).view(np.int32) if x.bits == 32 else np.float64(math.sqrt(0.5)).view(np.int64))


def _to_float(integers: Vector, x: Vector) -> Vector:
    return Vector(x.builder, x.builder.sitofp(integers.value, x.type))


@_register
def log1p(x: Vector) -> Vector:
    """Compute log(1 + x), accurate near zero: the rounding error of 1 + x is corrected."""
    rounded = x + 1.0
    error = x - (rounded - 1.0)
    value = log(rounded) + error / rounded
    value = x.compare(math.inf, "==").where(x, value)
    value = x.compare(-1.0, "==").where(x.broadcast(-math.inf), value)
    return rounded.compare(1.0, "==").where(x, value)


def _register_library_function(name: str, library: str) -> None:
    """Register a function of the C library, which is called lane by lane. This is slow, but cells rarely need it."""

    def code(*vectors: Vector) -> Vector:
        x = vectors[0]
        builder, function = x.builder, library + ("f" if x.bits == 32 else "")
        value = ir.Constant(x.type, ir.Undefined)
        for lane in map(INT32, range(x.type.count)):
            numbers = [builder.extract_element(v.value, lane) for v in vectors]
            value = builder.insert_element(value, call(builder, function, x.type.element, *numbers), lane)
        return Vector(builder, value)

    code.__name__ = name
    _register(code)


for _name in ("sin", "cos", "tan", "atan", "erf"):
    _register_library_function(_name, _name)
_register_library_function("power", "pow")
_register_library_function("fmod", "fmod")


_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg,
    "logical_and": operator.and_, "logical_or": operator.or_, "logical_not": operator.invert,
}  # fmt: skip
_COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}


def _register_decomposed(op: str) -> None:
    """Register a function that is decomposed into others."""

    def code(*vectors: Vector) -> Vector:
        def apply(part: str, arguments: list[Vector | float], _: bool) -> Vector:
            if part in _OPERATORS:
                return _OPERATORS[part](*arguments)
            operands = [vectors[0].broadcast(argument) for argument in arguments]
            if part in _COMPARISONS:
                return operands[0].compare(operands[1], _COMPARISONS[part])
            return FUNCTIONS[FUNCTION_NAMES.get(part, part)].code(*operands)

        return decompose(op, vectors, apply)

    code.__name__ = op
    _register(code)


for _name in sorted(DECOMPOSED.keys() - {"ne", *FUNCTIONS, *FUNCTION_NAMES}):
    _register_decomposed(_name)
