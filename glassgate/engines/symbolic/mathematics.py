"""Elementary functions, each composed once of primitive operations, which every backend and every export has.

Each function takes nodes or tensors, and floats for parameters. Its value is torch's, also at infinity, NaN and both
zeros, except for numbers that are too small to be normal. Derivatives are in `operations.py`, so the expressions here
are never differentiated. Errors are stated in units in the last place (ulp) of exact primitives.
"""

import math
from typing import Any

import torch

LN2 = math.log(2.0)
LARGE = 1e8
"""1 + x^2 rounds to x^2 for |x| above this number, and x^2 is still finite in float32."""


def _select(condition: Any, a: Any, b: Any) -> Any:
    """`torch.where`, also for a condition that is already decided."""
    return (a if condition else b) if isinstance(condition, bool) else torch.where(condition, a, b)


def _is_negative(x: Any) -> Any:
    """Whether the sign of a number is negative, also that of a zero. False for NaN."""
    return math.copysign(1.0, x) < 0 if isinstance(x, float) else (x < 0.0) | (1.0 / x < 0.0)


def _odd(x: Any, magnitude: Any) -> Any:
    """An odd function of x from its value at |x|. Zero and NaN are returned unchanged."""
    return torch.where(x > 0.0, magnitude, torch.where(x < 0.0, -magnitude, x))


def polynomial(x: Any, *coefficients: float) -> Any:
    """A polynomial from its coefficients, from the highest power to the lowest."""
    value = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def remainder(x: Any, y: Any) -> Any:
    """x - y floor(x / y), 1 ulp: `fmod`, moved to the sign of y."""
    rest = torch.fmod(x, y)
    above = torch.where(rest < 0.0, rest + y, rest)
    below = torch.where(rest > 0.0, rest + y, rest)
    return _select(y > 0.0, above, _select(y < 0.0, below, rest))


def exp2(x: Any) -> Any:
    """2^x, 1 ulp."""
    return torch.pow(2.0, x)


def sinh(x: Any) -> Any:
    """sinh(x), 3 ulp. Above 80, e^|x| may overflow, so it is computed as the square of e^(|x| / 2)."""
    half = torch.exp(0.5 * torch.abs(x))
    return torch.where(torch.abs(x) > 80.0, _odd(x, (0.5 * half) * half), 0.5 * (torch.expm1(x) - torch.expm1(-x)))


def cosh(x: Any) -> Any:
    """cosh(x), 3 ulp. Large numbers: see `sinh`."""
    half = torch.exp(0.5 * torch.abs(x))
    return torch.where(torch.abs(x) > 80.0, (0.5 * half) * half, 0.5 * (torch.exp(x) + torch.exp(-x)))


def asinh(x: Any) -> Any:
    """asinh(x), 4 ulp; log(2 |x|) for large numbers."""
    size = torch.abs(x)
    bounded = torch.where(size > LARGE, LARGE, size)
    square = bounded * bounded
    near = torch.log1p(bounded + square / (1.0 + torch.sqrt(1.0 + square)))
    return _odd(x, torch.where(size > LARGE, torch.log(size) + LN2, near))


def acosh(x: Any) -> Any:
    """acosh(x), 4 ulp; log(2 x) for large numbers. NaN below 1, because the square root of x - 1 is NaN."""
    above = x - 1.0
    near = torch.log1p(above + torch.sqrt(above) * torch.sqrt(above + 2.0))
    return torch.where(x > LARGE, torch.log(x) + LN2, near)


def atanh(x: Any) -> Any:
    """atanh(x), 3 ulp. Infinite at 1 and -1, NaN beyond."""
    size = torch.abs(x)
    return _odd(x, 0.5 * torch.log1p(2.0 * size / (1.0 - size)))


def asin(x: Any) -> Any:
    """asin(x), 3 ulp. NaN beyond 1 and -1, because the square root is NaN."""
    return 2.0 * torch.atan(x / (1.0 + torch.sqrt((1.0 - x) * (1.0 + x))))


def acos(x: Any) -> Any:
    """acos(x), 3 ulp. NaN beyond 1 and -1, because the square root is NaN."""
    size = torch.abs(x)
    angle = 2.0 * torch.atan(torch.sqrt((1.0 - size) / (1.0 + size)))
    return torch.where(x < 0.0, math.pi - angle, angle)


def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y), 4 ulp. Infinite and zero coordinates count as equal in size."""
    height, width = torch.abs(y), torch.abs(x)
    large, small = torch.maximum(height, width), torch.minimum(height, width)
    slope = torch.where((large == small) & (large > 0.0), 1.0, small / torch.where(large == 0.0, 1.0, large))
    angle = torch.atan(slope)
    angle = torch.where(height > width, math.pi / 2 - angle, angle)
    angle = torch.where(_is_negative(x), math.pi - angle, angle)
    return torch.where(_is_negative(y), -angle, angle)


def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x), with the error of torch.sin; 1 at zero."""
    angle = x * math.pi
    return torch.where(x == 0.0, 1.0, torch.sin(angle) / angle)


def copysign(x: Any, y: Any) -> Any:
    """The absolute value of x with the sign of y, exact. A NaN has no sign."""
    size = torch.abs(x)
    return _select(_is_negative(y), -size, size)


def hypot(x: Any, y: Any) -> Any:
    """sqrt(x^2 + y^2), 3 ulp, without overflow. Infinite if a number is infinite, even if the other is NaN."""
    a, b = torch.abs(x), torch.abs(y)
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    ratio = small / torch.where(large == 0.0, 1.0, large)
    length = large * torch.sqrt(1.0 + ratio * ratio)
    return torch.where((a == math.inf) | (b == math.inf), math.inf, length)


def logaddexp(x: Any, y: Any) -> Any:
    """log(e^x + e^y): the larger number, plus at most log 2, 2 ulp of the larger term."""
    distance = torch.where(x == y, 0.0, torch.abs(x - y))
    return torch.maximum(x, y) + torch.log1p(torch.exp(-distance))


def lerp(x: Any, end: Any, weight: Any) -> Any:
    """x + weight (end - x), computed from the nearer end."""
    distance = end - x
    return _select(abs(weight) < 0.5, x + weight * distance, end - distance * (1.0 - weight))


def logit(x: Any) -> Any:
    """log(x / (1 - x)), as torch computes it."""
    return torch.log(x / (1.0 - x))


def erfc_of_size(x: Any) -> Any:
    """erfc(|x|) from 0.46 on, 8 ulp, and NaN for NaN. Rational functions: W. J. Cody, 1969, Math. Comp. 23, 631."""
    size = torch.where(torch.abs(x) > 30.0, 30.0, torch.abs(x))
    # The middle range, up to 4.
    middle = polynomial(
        size,
        2.15311535474403846343e-8, 5.64188496988670089180e-1, 8.88314979438837594118, 6.61191906371416294775e1,
        2.98635138197400131132e2, 8.81952221241769090411e2, 1.71204761263407058314e3, 2.05107837782607146532e3,
        1.23033935479799725272e3,
    ) / polynomial(
        size,
        1.0, 1.57449261107098347253e1, 1.17693950891312499305e2, 5.37181101862009857509e2, 1.62138957456669018874e3,
        3.29079923573345962678e3, 4.36261909014324715820e3, 3.43936767414372163696e3, 1.23033935480374942043e3,
    )  # fmt: skip
    # The tail. Its argument is 1 / x^2.
    outside = torch.where(size < 1.0, 1.0, size)
    inverse = 1.0 / (outside * outside)
    tail = inverse * polynomial(
        inverse,
        1.63153871373020978498e-2, 3.05326634961232344035e-1, 3.60344899949804439429e-1, 1.25781726111229246204e-1,
        1.60837851487422766278e-2, 6.58749161529837803157e-4,
    ) / polynomial(
        inverse,
        1.0, 2.56852019228982242072, 1.87295284992346047209, 5.27905102951428412248e-1, 6.05183413124413191178e-2,
        2.33520497626869185443e-3,
    )  # fmt: skip
    tail = (1.0 / math.sqrt(math.pi) - tail) / outside
    # e^(-x^2): the square of `coarse` is exact, so its rounding error is not multiplied by x^2.
    coarse = torch.trunc(size * 16.0) * (1.0 / 16.0)
    scale = torch.exp(-(coarse * coarse)) * torch.exp(-((size - coarse) * (size + coarse)))
    return scale * torch.where(size > 4.0, tail, middle)


def erfc(x: Any) -> Any:
    """1 - erf(x), accurate where it is small, 8 ulp."""
    small = erfc_of_size(x)
    return torch.where(torch.abs(x) < 0.5, 1.0 - torch.erf(x), torch.where(x < 0.0, 2.0 - small, small))


def _times_sigmoid(x: Any, z: Any) -> Any:
    """x / (1 + e^-z) without overflow, also where the result is small."""
    e = torch.exp(-torch.abs(z))
    return x * (torch.where(z < 0.0, e, 1.0) / (1.0 + e))


def silu(x: Any) -> Any:
    """x sigmoid(x), 3 ulp. Minus infinity gives NaN, as in torch."""
    return _times_sigmoid(x, x)


def softplus(x: Any) -> Any:
    """log(1 + e^x), 2 ulp, without overflow."""
    return torch.where(x > 0.0, x, 0.0) + torch.log1p(torch.exp(-torch.abs(x)))


def mish(x: Any) -> Any:
    """x tanh(softplus(x)), 4 ulp. Minus infinity gives NaN, as in torch."""
    return x * torch.tanh(softplus(x))


def gelu(x: Any) -> Any:
    """x Phi(x), where Phi is the normal distribution, as torch computes it."""
    return x * 0.5 * (1.0 + torch.erf(x * math.sqrt(0.5)))


def gelu_tanh(x: Any) -> Any:
    """x (1 + tanh(u)) / 2 = x sigmoid(2 u), which does not cancel."""
    return _times_sigmoid(x, 2.0 * gelu_argument(x))


def gelu_argument(x: Any) -> Any:
    """The argument u of tanh in `gelu_tanh`."""
    return math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))


def elu(x: Any, alpha: float = 1.0) -> Any:
    """alpha (e^x - 1) below zero, 2 ulp; x above."""
    return torch.where(x > 0.0, x, alpha * torch.expm1(x))


def celu(x: Any, alpha: float = 1.0) -> Any:
    """alpha (e^(x / alpha) - 1) below zero, 2 ulp of the exponent; x above."""
    return torch.where(x > 0.0, x, alpha * torch.expm1(x * (1.0 / alpha)))


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def selu(x: Any) -> Any:
    """A multiple of elu (Klambauer et al. 2017, arXiv:1706.02515), 3 ulp."""
    return torch.where(x > 0.0, SELU_SCALE * x, SELU_SCALE * SELU_ALPHA * torch.expm1(x))
