"""The elementwise operations that kernels support, with their derivatives, and torch functions composed of these.

All functions here take nodes (`graph.Node`), on which Python's operators and torch's functions work.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from glassgate.engines.symbolic import mathematics


class Operation(NamedTuple):
    """An elementwise operation: its function on tensors, its derivative, and its composition.

    `derivative(d, y, *x)` maps the gradient `d` of the result `y` to the gradients of the arguments `x`; a gradient of
    None is zero. An operation without `derivative` has zero gradients.

    `composed(*x)` computes the operation from others. It is expanded after differentiation, so backends and exports
    never see the operation. An operation without `composed` is primitive: every backend and export has it.
    """

    compute: Callable[..., Any]
    derivative: Callable[..., tuple[Any, ...]] | None = None
    composed: Callable[..., Any] | None = None


def _gradient_unless(d: Any, unselected: Any, tie: Any) -> Any:
    """The gradient of an argument of minimum or maximum: half of `d` at a tie. With NaN, each argument gets `d`."""
    return torch.where(unselected, 0.0, torch.where(tie, d * 0.5, d))


def _pow_derivative(d: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    if isinstance(b, float):
        return d * (b * torch.pow(a, b - 1.0)) if b else None, None
    if isinstance(a, float):
        logarithm = math.log(a) if a > 0 else math.nan if a < 0 else -math.inf
        return None, torch.where(b >= 0, 0.0, d * (y * logarithm)) if a == 0 else d * y * logarithm
    return (
        torch.where(b == 0, 0.0, d * (b * torch.pow(a, b - 1.0))),
        torch.where((a == 0) & (b >= 0), 0.0, d * (y * torch.log(a))),
    )


def _atan2_derivative(d: Any, angle: Any, y: Any, x: Any) -> tuple[Any, Any]:
    inverse = 1.0 / (x * x + y * y)
    inverse = torch.where(inverse == math.inf, 0.0, inverse)
    return d * (x * inverse), -d * (y * inverse)


def _remainder_derivative(d: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """The gradient of b is -floor(a / b), whose quotient is exact without the remainder."""
    if isinstance(b, float):
        return d, None
    rest = torch.fmod(a, b)
    quotient = (a - rest) / b - torch.where(y == rest, 0.0, 1.0)
    large = a / b + (a - a)  # torch's fmod of a large quotient is NaN, and so is the gradient where a is infinite
    rounded = torch.where(rest == rest, torch.floor(quotient + 0.5), large)
    return d, -d * torch.where(b == 0, a / b, rounded)


def _sinc_derivative(d: Any, y: Any, x: Any) -> tuple[Any]:
    """With a = pi x, the derivative is (cos(a) - y) / x, or pi times a series in odd powers of a.

    The difference cancels near zero: its relative error is about 3 eps / a^2, so at most 3 eps from a = 1 on. Below 1,
    the first term that the series omits is about 1e-18 of the result.
    """
    angle = x * math.pi
    is_near = torch.abs(angle) < 1.0
    small, far = torch.where(is_near, angle, 0.0), torch.where(is_near, 1.0, x)
    series = small * mathematics.polynomial(small * small, *_SINC_SERIES)
    return (d * torch.where(is_near, series, (torch.cos(angle) - y) / far),)


_SINC_SERIES = [math.pi * (-1) ** n * 2 * n / math.factorial(2 * n + 1) for n in range(9, 0, -1)]
"""The coefficients of pi times the derivative of sin(a) / a, from a^17 to a."""


def _silu_derivative(d: Any, y: Any, x: Any) -> tuple[Any]:
    s = torch.sigmoid(x)
    return (d * (s * (1.0 + x * (1.0 - s))),)


def _mish_derivative(d: Any, y: Any, x: Any) -> tuple[Any]:
    t = torch.tanh(mathematics.softplus(x))
    return (d * (t + x * (torch.sigmoid(x) * (1.0 - t * t))),)


def _gelu_derivative(d: Any, y: Any, x: Any) -> tuple[Any]:
    density = torch.exp(-0.5 * (x * x)) * (1.0 / math.sqrt(2.0 * math.pi))
    return (d * (0.5 * (1.0 + torch.erf(x * math.sqrt(0.5))) + x * density),)


def _gelu_tanh_derivative(d: Any, y: Any, x: Any) -> tuple[Any]:
    # With s = sigmoid(2 u), (1 + tanh(u)) / 2 is s, and (1 - tanh(u)^2) / 2 is 2 s (1 - s).
    s = torch.sigmoid(2.0 * mathematics.gelu_argument(x))
    slope = math.sqrt(2.0 / math.pi) * (1.0 + 3 * 0.044715 * (x * x))
    return (d * (s + x * (s * (1.0 - s)) * (2.0 * slope)),)


def _exp_below_zero(x: Any) -> Any:
    """e^x below zero, 1 above. If e^x overflowed, the second derivative would be 0 * inf = NaN where x is positive."""
    return torch.exp(torch.where(x > 0, 0.0, x))


OPERATIONS: dict[str, Operation] = {
    "add": Operation(torch.add, lambda d, y, a, b: (d, d)),
    "sub": Operation(torch.sub, lambda d, y, a, b: (d, -d)),
    "mul": Operation(torch.mul, lambda d, y, a, b: (d * b, d * a)),
    "div": Operation(torch.div, lambda d, y, a, b: (d / b, -(d / b) * y)),
    "neg": Operation(torch.neg, lambda d, y, x: (-d,)),
    "detach": Operation(torch.detach, lambda d, y, x: (None,)),
    "abs": Operation(torch.abs, lambda d, y, x: (d * torch.sign(x),)),
    "sign": Operation(torch.sign),
    "floor": Operation(torch.floor),
    "ceil": Operation(torch.ceil),
    "round": Operation(torch.round),
    "trunc": Operation(torch.trunc),
    "sqrt": Operation(torch.sqrt, lambda d, y, x: (d * 0.5 / y,)),
    "rsqrt": Operation(torch.rsqrt, lambda d, y, x: (d * y * y * y * -0.5,)),
    "exp": Operation(torch.exp, lambda d, y, x: (d * y,)),
    "expm1": Operation(torch.expm1, lambda d, y, x: (d * (y + 1.0),)),
    "log": Operation(torch.log, lambda d, y, x: (d / x,)),
    "log1p": Operation(torch.log1p, lambda d, y, x: (d / (x + 1.0),)),
    "sin": Operation(torch.sin, lambda d, y, x: (d * torch.cos(x),)),
    "cos": Operation(torch.cos, lambda d, y, x: (-d * torch.sin(x),)),
    "tan": Operation(torch.tan, lambda d, y, x: (d * (y * y + 1.0),)),
    "atan": Operation(torch.atan, lambda d, y, x: (d / (x * x + 1.0),)),
    "sigmoid": Operation(torch.sigmoid, lambda d, y, x: (d * y * (1.0 - y),)),
    "tanh": Operation(torch.tanh, lambda d, y, x: (d * (1.0 - y * y),)),
    "erf": Operation(torch.erf, lambda d, y, x: (d * (2.0 / math.sqrt(math.pi)) * torch.exp(-(x * x)),)),
    "pow": Operation(torch.pow, _pow_derivative),
    "minimum": Operation(
        torch.minimum, lambda d, y, a, b: (_gradient_unless(d, a > b, a == b), _gradient_unless(d, b > a, a == b))
    ),
    "maximum": Operation(
        torch.maximum, lambda d, y, a, b: (_gradient_unless(d, a < b, a == b), _gradient_unless(d, b < a, a == b))
    ),
    "where": Operation(torch.where, lambda d, y, m, a, b: (None, torch.where(m, d, 0.0), torch.where(m, 0.0, d))),
    "lt": Operation(torch.lt),
    "le": Operation(torch.le),
    "eq": Operation(torch.eq),
    "ne": Operation(torch.ne),
    "logical_and": Operation(torch.logical_and),
    "logical_or": Operation(torch.logical_or),
    "logical_not": Operation(torch.logical_not),
    "fmod": Operation(torch.fmod, lambda d, y, a, b: (d, -d * torch.trunc(a / b))),
    "remainder": Operation(torch.remainder, _remainder_derivative, mathematics.remainder),
    "exp2": Operation(torch.exp2, lambda d, y, x: (d * y * math.log(2.0),), mathematics.exp2),
    "sinh": Operation(torch.sinh, lambda d, y, x: (d * torch.cosh(x),), mathematics.sinh),
    "cosh": Operation(torch.cosh, lambda d, y, x: (d * torch.sinh(x),), mathematics.cosh),
    "asinh": Operation(torch.asinh, lambda d, y, x: (d * torch.rsqrt(x * x + 1.0),), mathematics.asinh),
    "acosh": Operation(torch.acosh, lambda d, y, x: (d * torch.rsqrt(x * x - 1.0),), mathematics.acosh),
    "atanh": Operation(torch.atanh, lambda d, y, x: (d / (1.0 - x * x),), mathematics.atanh),
    "asin": Operation(torch.asin, lambda d, y, x: (d * torch.rsqrt(1.0 - x * x),), mathematics.asin),
    "acos": Operation(torch.acos, lambda d, y, x: (-d * torch.rsqrt(1.0 - x * x),), mathematics.acos),
    "atan2": Operation(torch.atan2, _atan2_derivative, mathematics.atan2),
    "sinc": Operation(torch.sinc, _sinc_derivative, mathematics.sinc),
    "copysign": Operation(
        torch.copysign, lambda d, y, a, b: (torch.where(a == 0, 0.0, d * (y / a)), None), mathematics.copysign
    ),
    "hypot": Operation(torch.hypot, lambda d, y, a, b: (d * a / y, d * b / y), mathematics.hypot),
    "logaddexp": Operation(
        torch.logaddexp,
        lambda d, y, a, b: (d / (1.0 + torch.exp(b - a)), d / (1.0 + torch.exp(a - b))),
        mathematics.logaddexp,
    ),
    "lerp": Operation(
        torch.lerp, lambda d, y, a, b, weight: (d * (1.0 - weight), d * weight, d * (b - a)), mathematics.lerp
    ),
    "logit": Operation(
        torch.logit,
        lambda d, y, x: (torch.where((x < 0) | (x > 1), math.nan, d / (x * (1.0 - x))),),
        mathematics.logit,
    ),
    "erfc": Operation(
        torch.erfc, lambda d, y, x: (d * (-2.0 / math.sqrt(math.pi)) * torch.exp(-(x * x)),), mathematics.erfc
    ),
    "silu": Operation(F.silu, _silu_derivative, mathematics.silu),
    "mish": Operation(F.mish, _mish_derivative, mathematics.mish),
    "gelu": Operation(F.gelu, _gelu_derivative, mathematics.gelu),
    "gelu_tanh": Operation(partial(F.gelu, approximate="tanh"), _gelu_tanh_derivative, mathematics.gelu_tanh),
    "elu": Operation(
        F.elu,
        lambda d, y, x, alpha: (torch.where(x > 0, d, d * (alpha * _exp_below_zero(x))), None),
        mathematics.elu,
    ),
    "celu": Operation(
        F.celu,
        lambda d, y, x, alpha: (torch.where(x > 0, d, d * _exp_below_zero(x * (1.0 / alpha))), None),
        mathematics.celu,
    ),
    "selu": Operation(
        F.selu,
        lambda d, y, x: (
            mathematics.SELU_SCALE * torch.where(x > 0, d, d * (mathematics.SELU_ALPHA * _exp_below_zero(x))),
        ),
        mathematics.selu,
    ),
}

_BINARY = """
add sub mul div pow minimum maximum lt le eq ne logical_and logical_or fmod remainder atan2 copysign hypot logaddexp
elu celu
"""
ARITY = dict.fromkeys(OPERATIONS, 1) | dict.fromkeys(_BINARY.split(), 2) | {"where": 3, "lerp": 3}
"""The number of arguments of each operation."""

PRIMITIVES = frozenset(name for name, operation in OPERATIONS.items() if operation.composed is None)
"""The operations that every backend and export has."""

MASKS = frozenset({"lt", "le", "eq", "ne", "logical_and", "logical_or", "logical_not"})
"""The operations whose result is a boolean mask. All others return numbers."""


def _at_least(x: Any, bound: Any) -> Any:
    return torch.where(x >= bound, x, torch.where(x < bound, bound, torch.detach(x + bound)))


def _at_most(x: Any, bound: Any) -> Any:
    return torch.where(x <= bound, x, torch.where(x > bound, bound, torch.detach(x + bound)))


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    """The result and the gradients of torch.clamp: NaN if a number is NaN, `max` if it is less than `min`."""
    if min is None or max is None:
        return _at_most(x, max) if min is None else _at_least(x, min)
    if isinstance(min, (int, float)) and isinstance(max, (int, float)):
        if min > max:
            return torch.detach(torch.where(x == x, max, x))
        return torch.where((x >= min) & (x <= max), x, torch.detach(_at_least(_at_most(x, max), min)))
    low, high = (x.constant_like(v) if isinstance(v, (int, float)) else v for v in (min, max))
    bound = torch.where((x < low) & (low < high), low, torch.detach(_at_least(x, low) + (high - high)))
    bound = torch.where((x > high) | (high < low), high + torch.detach(torch.where(x == x, 0.0, x)), bound)
    return torch.where((x >= low) & (x <= high), x, bound)


def _hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    bound = torch.where(x <= min_val, min_val, torch.where(x >= max_val, max_val, x))
    return torch.where((x > min_val) & (x < max_val), x, torch.detach(bound))


def _hardsigmoid(x: Any) -> Any:
    bound = torch.where(x <= -3, 0.0, torch.where(x >= 3, 1.0, x))
    return torch.where((x > -3) & (x < 3), x * (1.0 / 6.0) + 0.5, torch.detach(bound))


def _hardswish(x: Any) -> Any:
    middle = torch.where(x <= -3, 0.0, torch.where(x >= 3, 0.0, x))
    return torch.where(x <= -3, torch.detach(x) * 0.0, torch.where(x >= 3, x, middle * (middle + 3.0) / 6.0))


def _logit(x: Any, eps: float | None = None) -> Any:
    return (x if eps is None else _clamp(x, eps, 1.0 - eps)).elementwise("logit")


def _nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    if posinf is None or neginf is None:
        x.refuse("torch.nan_to_num without posinf and neginf, whose values then depend on the dtype")
    else:
        x = torch.where(x == math.inf, posinf, torch.where(x == -math.inf, neginf, x))
    return torch.where(x != x, nan, x)


def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    z = x * beta
    return torch.where(z > threshold, x, _log_of_one_plus_exp(z) / beta)


def _logsigmoid(x: Any) -> Any:
    # At 0 the derivatives of the two terms are 0 and 1/2. Their sum is the derivative of logsigmoid.
    return torch.where(x < 0, x, 0.0) - torch.log1p(torch.exp(torch.where(x < 0, x, -x)))


def _log_of_one_plus_exp(z: Any) -> Any:
    # At 0 the derivatives of the two terms are 0 and 1/2. Their sum is the derivative of softplus.
    return torch.where(z > 0, z, 0.0) + torch.log1p(torch.exp(torch.where(z > 0, -z, z)))


def _mean(x: Any, dim: int, keepdim: bool) -> Any:
    return torch.sum(x, dim, keepdim=keepdim) / x.units


def _var(x: Any, dim: int, unbiased: bool = True, keepdim: bool = False, correction: int = 1) -> Any:
    distance = x - _mean(x, dim, keepdim)
    return torch.sum(distance * distance, dim, keepdim=keepdim) / (x.units - (correction if unbiased else 0))


COMPOSED: dict[str, Callable[..., Any]] = {
    "add": lambda x, other, alpha=1: x + other * alpha,
    "sub": lambda x, other, alpha=1: x - other * alpha,
    "rsub": lambda x, other, alpha=1: other - x * alpha,
    "addcmul": lambda x, a, b, value=1: x + value * a * b,
    "addcdiv": lambda x, a, b, value=1: x + value * a / b,
    "gt": lambda x, other: other < x,
    "ge": lambda x, other: other <= x,
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1.0 / x,
    "log2": lambda x: torch.log(x) * (1.0 / math.log(2.0)),
    "log10": lambda x: torch.log(x) * (1.0 / math.log(10.0)),
    "logit": _logit,
    "nan_to_num": _nan_to_num,
    "relu": lambda x: torch.where(x <= 0, 0.0, x),
    "relu6": lambda x: _hardtanh(x, 0.0, 6.0),
    "leaky_relu": lambda x, negative_slope=0.01: torch.where(x > 0, x, negative_slope * x),
    "threshold": lambda x, threshold, value: torch.where(x <= threshold, value, x),
    "hardtanh": _hardtanh,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
    "hardshrink": lambda x, lambd=0.5: torch.where(
        (x < -lambd) | (x > lambd), x, torch.detach(torch.where(x == x, 0.0, x))
    ),
    "softshrink": lambda x, lambd=0.5: torch.where(x > lambd, x - lambd, torch.where(x < -lambd, x + lambd, 0.0 * x)),
    "tanhshrink": lambda x: x - torch.tanh(x),
    "softsign": lambda x: x / (1.0 + torch.abs(x)),
    "softplus": _softplus,
    "logsigmoid": _logsigmoid,
    "gelu": lambda x, approximate="none": x.elementwise("gelu_tanh" if approximate == "tanh" else "gelu"),
    "elu": lambda x, alpha=1.0: x.elementwise("elu", alpha),
    "celu": lambda x, alpha=1.0: x.elementwise("celu", alpha),
    "clamp": _clamp,
    "clamp_min": lambda x, min: _clamp(x, min),
    "clamp_max": lambda x, max: _clamp(x, max=max),
    "mean": _mean,
    "var": _var,
    "logical_xor": lambda x, other: torch.ne(torch.logical_not(x), torch.logical_not(other)),
    "bitwise_and": lambda x, other: x & other,
    "bitwise_or": lambda x, other: x | other,
    "bitwise_xor": lambda x, other: x ^ other,
    "invert": lambda x: ~x,
    "zeros_like": lambda x: x.constant_like(0.0),
    "ones_like": lambda x: x.constant_like(1.0),
    "full_like": lambda x, fill_value: x.constant_like(fill_value),
}
"""torch's functions, composed of the operations above. Their optional arguments have the names that torch uses."""

REDUCTIONS = frozenset({"mean", "var"})
"""The functions in `COMPOSED` that reduce a row, like `sum`."""

ALIASES = {
    "absolute": "abs", "negative": "neg", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "truediv": "div", "fix": "trunc", "clip": "clamp", "expit": "sigmoid", "arctan": "atan",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "not_equal": "ne",
    "log_sigmoid": "logsigmoid", "_threshold": "threshold",
    "arcsin": "asin", "arccos": "acos", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "bitwise_not": "invert", "mod": "remainder",
}  # fmt: skip
"""torch's other names for the functions above."""
