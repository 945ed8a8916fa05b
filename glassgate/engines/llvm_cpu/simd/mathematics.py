"""The mathematical functions of kernels, for vectors. NaN and infinity are handled as in torch."""

import math
from collections.abc import Callable, Sequence
from functools import cache

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import INT16, INT32, call
from glassgate.engines.llvm_cpu.simd.vector import Lanes, VectorFunction

FUNCTIONS: dict[str, VectorFunction] = {}
"""The functions by their names in kernels."""
LARGEST_REST = 0.3467
"""ln 2 / 2: the largest remainder of an argument of exp."""
TANH_UPPER = 0.999999985, 0.134004544, 0.00351872942, 2.09935921e-05, 1.38972992e-08
TANH_LOWER = 1.0, 0.467337746, 0.0259648385, 0.000332362407, 7.99639113e-07
"""Polynomials in x^2 whose quotient is tanh(x) / x, within 2e-8 up to |x| = 8.7, where tanh(x) rounds to 1."""


def _kernel_function(code: Callable[..., Lanes]) -> Callable[..., Lanes]:
    """Register a function under its name in kernels."""
    FUNCTIONS[code.__name__] = VectorFunction(code)
    return code


@cache
def economized(series: Callable[[int], float], radius: float, degree: int) -> tuple[float, ...]:
    """The coefficients of a polynomial that approximates a power series for |x| <= radius.

    Args:
        series: returns the coefficient of x^k.
        radius: the largest |x|.
        degree: the degree of the polynomial, to which the series is reduced with Chebyshev polynomials.
    """
    scaled = np.array([series(k) * radius**k for k in range(degree + 12)])
    short = np.polynomial.chebyshev.cheb2poly(np.polynomial.chebyshev.poly2cheb(scaled)[: degree + 1])
    return tuple(float(c) / radius**k for k, c in enumerate(short))


def horner(x: Lanes, coefficients: Sequence[float]) -> Lanes:
    """The polynomial with these coefficients, in ascending order. Horner's rule needs the fewest instructions."""
    *rest, last = coefficients
    value = x.like(last)
    for coefficient in reversed(rest):
        value = value.fma(x, coefficient)
    return value


def polynomial(x: Lanes, series: Callable[[int], float], radius: float, degree: int) -> Lanes:
    """A power series, approximated as in `economized`, by Horner's rule."""
    return horner(x, economized(series, radius, degree))


def polynomial_in_pairs(x: Lanes, series: Callable[[int], float], radius: float, degree: int) -> Lanes:
    """As `polynomial`, by Estrin's rule: pairs of terms are independent, so the chain of dependencies is shorter."""
    *low, last = [x.like(c) for c in economized(series, radius, degree)]
    terms = [*low, last]
    while len(terms) > 1:
        odd = terms[len(terms) // 2 * 2 :]
        terms = [b.fma(x, a) for a, b in zip(terms[::2], terms[1::2], strict=False)] + odd
        x = x * x
    return terms[0]


def _clamped(x: Lanes, low: float, high: float) -> Lanes:
    """Clamp to a range. NaN stays NaN, because comparisons with it are false."""
    x = x.compare(high, ">").where(x.like(high), x)
    return x.compare(low, "<").where(x.like(low), x)


def _after_second(k: int) -> float:
    return 1.0 / math.factorial(k + 2)


def _of_exp(k: int) -> float:
    return 1.0 / math.factorial(k)


def _reduced(x: Lanes, sign: float = 1.0, less: int = 0) -> tuple[Lanes, Lanes]:
    """Split the argument of exp: sign * x = n ln 2 + r, with an integer n and |r| <= ln 2 / 2.

    Returns r and 2^(n - less), which must be a normal number.
    """
    mantissa, bias = (23, 127) if x.bits == 32 else (52, 1023)
    # The last bits of a sum with this number are the rounded integer plus the bias of an exponent.
    rounds = 1.5 * 2.0**mantissa + bias - less
    high, low = _log_of_two(x)
    shifted = x.fma(sign / math.log(2.0), rounds)
    n = shifted - rounds
    r = n.fma(-low, n.fma(-high, x if sign > 0 else -x))
    return r, shifted.as_bits().integer(mantissa, "shl").as_float(x)


def _expm1_of_rest(r: Lanes) -> Lanes:
    """e^r - 1 for |r| <= ln 2 / 2."""
    return (r * r).fma(polynomial_in_pairs(r, _after_second, LARGEST_REST, 4 if r.bits == 32 else 10), r)


def _log_of_two(x: Lanes) -> tuple[float, float]:
    """ln 2 as a sum of two numbers. The first one has so few bits that its product with an exponent is exact."""
    return (0.693359375, -2.12194440054690583e-4) if x.bits == 32 else (0.69314718036912382, 1.90821492927058770e-10)


def _range(x: Lanes) -> tuple[float, float]:
    """The range in which exp is neither infinite nor denormal."""
    return (-86.9, 88.72283) if x.bits == 32 else (-707.7, 709.782712893384)


@_kernel_function
def exp(x: Lanes) -> Lanes:
    """e^x."""
    low, high = _range(x)
    r, half = _reduced(_clamped(x, low, high), less=1)
    value = _expm1_of_rest(r).fma(half, half) * 2.0
    value = x.compare(high, ">").where(x.like(math.inf), value)
    return x.compare(low, "<").where(x.like(0.0), value)


@_kernel_function
def expm1(x: Lanes) -> Lanes:
    """e^x - 1, accurate near zero."""
    _, high = _range(x)
    value = _expm1(_clamped(x, -40.0, high - 0.7))
    return x.compare(high - 0.7, ">").where(exp(x), value)


def _expm1(x: Lanes) -> Lanes:
    r, scale = _reduced(x)
    return _expm1_of_rest(r).fma(scale, scale - 1.0)


def _quotient(a: Lanes | float, b: Lanes) -> Lanes:
    """a / b for a finite b far from the limits of the range, without the slow division instruction if possible."""
    if b.bits == 32 and b.type.count == 16 and llvm.get_host_cpu_features().get("avx512f"):
        guess = _reciprocal_guess(b)
        guess = guess.fma(-b.fma(guess, -1.0), guess)
        value = guess * a
        return (-b).fma(value, a).fma(guess, value) if isinstance(a, Lanes) else value
    return a / b


def _reciprocal_guess(b: Lanes) -> Lanes:
    """1 / b to 14 bits."""
    operands = b.value, b.like(0.0).value, INT16(-1)
    return Lanes(b.builder, call(b.builder, "llvm.x86.avx512.rcp14.ps.512", b.type, *operands))


@_kernel_function
def sigmoid(x: Lanes) -> Lanes:
    """1 / (1 + e^-x)."""
    limit, degree = (87.0, 6) if x.bits == 32 else (708.0, 12)
    r, scale = _reduced(_clamped(x, -limit, limit), sign=-1.0)
    return _quotient(1.0, polynomial(r, _of_exp, LARGEST_REST, degree).fma(scale, 1.0))


@_kernel_function
def tanh(x: Lanes) -> Lanes:
    """tanh(x), accurate near zero: a quotient of polynomials in 32 bits, computed from e^(2x) - 1 in 64 bits."""
    if x.bits == 64:
        grown = _expm1(_clamped(x + x, -40.0, 40.0))
        return _quotient(grown, grown + 2.0)
    x = _clamped(x, -8.7, 8.7)
    square = x * x
    return _clamped(_quotient(x * horner(square, TANH_UPPER), horner(square, TANH_LOWER)), -1.0, 1.0)


@_kernel_function
def sqrt(x: Lanes) -> Lanes:
    """The square root."""
    return x.call("llvm.sqrt")


@_kernel_function
def rsqrt(x: Lanes) -> Lanes:
    """1 / sqrt(x)."""
    return 1.0 / sqrt(x)


@_kernel_function
def absolute(x: Lanes) -> Lanes:
    """|x|."""
    return x.call("llvm.fabs")


@_kernel_function
def sign(x: Lanes) -> Lanes:
    """-1, 0 or 1; 0 for NaN, as in torch."""
    return x.compare(0.0, ">").where(x.like(1.0), x.compare(0.0, "<").where(x.like(-1.0), 0.0))


def _rounding(name: str, instruction: str) -> None:
    def code(x: Lanes) -> Lanes:
        return x.call(instruction)

    code.__name__ = name
    _kernel_function(code)


for _name, _instruction in (
    ("floor", "llvm.floor"),
    ("ceil", "llvm.ceil"),
    ("round_even", "llvm.rint"),
    ("trunc", "llvm.trunc"),
):
    _rounding(_name, _instruction)


@_kernel_function
def minimum(a: Lanes, b: Lanes) -> Lanes:
    """The smaller one; NaN if either is."""
    smaller = a.compare(b, "<").where(a, b)
    return a.compare(a, "!=").where(a, smaller)


@_kernel_function
def maximum(a: Lanes, b: Lanes) -> Lanes:
    """The larger one; NaN if either is."""
    larger = a.compare(b, ">").where(a, b)
    return a.compare(a, "!=").where(a, larger)


@_kernel_function
def where(mask: Lanes, a: Lanes, b: Lanes) -> Lanes:
    """`a` where the mask is true, `b` elsewhere."""
    return mask.where(a, b)


def _log_series(k: int) -> float:
    return 2.0 / (2 * k + 3)


@_kernel_function
def log(x: Lanes) -> Lanes:
    """The natural logarithm. That of the mantissa m is 2 atanh((m - 1) / (m + 1))."""
    mantissa, bias, degree = (23, 127, 3) if x.bits == 32 else (52, 1023, 8)
    tiny = x.compare(2.0 ** (1 - bias), "<")
    bits = tiny.where(x * 2.0 ** (mantissa + 1), x).as_bits()
    exponent = bits.integer(_half_bits(x), "sub").integer(mantissa, "ashr")
    m = bits.integer(exponent.integer(mantissa, "shl"), "sub").as_float(x)
    n = _to_float(exponent, x) - tiny.where(x.like(mantissa + 1.0), 0.0)
    f = m - 1.0
    s = f / (f + 2.0)
    w = s * s
    high, low = _log_of_two(x)
    value = n.fma(high, f - s.fma(f - w * polynomial(w, _log_series, 0.0295, degree), n * -low))
    value = x.compare(math.inf, "==").where(x, value)
    value = x.compare(0.0, "==").where(x.like(-math.inf), value)
    return x.compare(0.0, "<").where(x.like(math.nan), x.compare(x, "!=").where(x, value))


def _half_bits(x: Lanes) -> int:
    """The bits of sqrt(1/2). `log` divides its argument by a power of two, to a mantissa from sqrt(1/2) to sqrt(2)."""
    return int(np.float32(math.sqrt(0.5)).view(np.int32) if x.bits == 32 else np.float64(math.sqrt(0.5)).view(np.int64))


def _to_float(integers: Lanes, like: Lanes) -> Lanes:
    return Lanes(like.builder, like.builder.sitofp(integers.value, like.type))


@_kernel_function
def log1p(x: Lanes) -> Lanes:
    """log(1 + x), accurate near zero: the rounding error of 1 + x is corrected."""
    grown = x + 1.0
    lost = x - (grown - 1.0)
    value = log(grown) + lost / grown
    value = x.compare(math.inf, "==").where(x, value)
    value = x.compare(-1.0, "==").where(x.like(-math.inf), value)
    return grown.compare(1.0, "==").where(x, value)


def _one_by_one(name: str, library: str) -> None:
    """Register a function of the C library that is called for each lane. This is slow, but rare in cells."""

    def code(*vectors: Lanes) -> Lanes:
        x = vectors[0]
        builder, function = x.builder, library + ("f" if x.bits == 32 else "")
        value = ir.Constant(x.type, ir.Undefined)
        for lane in map(INT32, range(x.type.count)):
            numbers = [builder.extract_element(v.value, lane) for v in vectors]
            value = builder.insert_element(value, call(builder, function, x.type.element, *numbers), lane)
        return Lanes(builder, value)

    code.__name__ = name
    _kernel_function(code)


for _name in ("sin", "cos", "tan", "atan", "erf"):
    _one_by_one(_name, _name)
_one_by_one("power", "pow")
