"""The elementwise operations that kernels support, with their derivatives, and torch functions composed of these.

All functions here take nodes (`graph.Node`), on which Python's operators and torch's functions work.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Operation(NamedTuple):
    """An elementwise operation: its function on tensors, and its derivative.

    `derivative(d, y, *x)` maps the gradient `d` of the result `y` to the gradients of the arguments `x`; a gradient of
    None is zero. An operation without `derivative` has zero gradients.
    """

    compute: Callable[..., Any]
    derivative: Callable[..., tuple[Any, ...]] | None = None


def _selected_gradient(d: Any, selected: Any, tie: Any) -> Any:
    """The gradient of an argument of minimum or maximum. At a tie each argument gets half."""
    return torch.where(tie, d * 0.5, torch.where(selected, d, 0.0))


def _pow_derivative(d: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    if isinstance(b, float):
        return d * b * torch.pow(a, b - 1.0) if b else None, None
    if isinstance(a, float):
        return None, torch.where(b >= 0, 0.0, -math.inf) * d if a == 0 else d * y * (math.log(a) if a > 0 else math.nan)
    return (
        torch.where(b == 0, 0.0, d * b * torch.pow(a, b - 1.0)),
        torch.where((a == 0) & (b >= 0), 0.0, d * y * torch.log(a)),
    )


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
    "rsqrt": Operation(torch.rsqrt, lambda d, y, x: (d * (y * y * y) * -0.5,)),
    "exp": Operation(torch.exp, lambda d, y, x: (d * y,)),
    "expm1": Operation(torch.expm1, lambda d, y, x: (d * (y + 1.0),)),
    "log": Operation(torch.log, lambda d, y, x: (d / x,)),
    "log1p": Operation(torch.log1p, lambda d, y, x: (d / (x + 1.0),)),
    "sin": Operation(torch.sin, lambda d, y, x: (d * torch.cos(x),)),
    "cos": Operation(torch.cos, lambda d, y, x: (-d * torch.sin(x),)),
    "tan": Operation(torch.tan, lambda d, y, x: (d * (y * y + 1.0),)),
    "atan": Operation(torch.atan, lambda d, y, x: (d / (x * x + 1.0),)),
    "sigmoid": Operation(torch.sigmoid, lambda d, y, x: (d * (y * (1.0 - y)),)),
    "tanh": Operation(torch.tanh, lambda d, y, x: (d * (1.0 - y * y),)),
    "erf": Operation(torch.erf, lambda d, y, x: (d * (2.0 / math.sqrt(math.pi)) * torch.exp(-(x * x)),)),
    "pow": Operation(torch.pow, _pow_derivative),
    "minimum": Operation(
        torch.minimum, lambda d, y, a, b: (_selected_gradient(d, a < b, a == b), _selected_gradient(d, b < a, a == b))
    ),
    "maximum": Operation(
        torch.maximum, lambda d, y, a, b: (_selected_gradient(d, a > b, a == b), _selected_gradient(d, b > a, a == b))
    ),
    "where": Operation(torch.where, lambda d, y, m, a, b: (None, torch.where(m, d, 0.0), torch.where(m, 0.0, d))),
    "lt": Operation(torch.lt),
    "le": Operation(torch.le),
    "eq": Operation(torch.eq),
    "ne": Operation(torch.ne),
    "logical_and": Operation(torch.logical_and),
    "logical_or": Operation(torch.logical_or),
    "logical_not": Operation(torch.logical_not),
}

_BINARY = ["add", "sub", "mul", "div", "pow", "minimum", "maximum", "lt", "le", "eq", "ne", "logical_and", "logical_or"]
ARITY = dict.fromkeys(OPERATIONS, 1) | dict.fromkeys(_BINARY, 2) | {"where": 3}
"""The number of arguments of each operation."""

MASKS = frozenset({"lt", "le", "eq", "ne", "logical_and", "logical_or", "logical_not"})
"""The operations whose result is a boolean mask. All others return numbers."""


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    if min is not None:
        x = torch.where(x < min, min, x)
    return x if max is None else torch.where(x > max, max, x)


def _hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    return torch.where(x <= min_val, min_val, torch.where(x >= max_val, max_val, x))


def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, sharpness: float = 1.0) -> Any:
    # expm1 gets only the negative part. If it overflowed, its gradient would be 0 * inf = NaN where x is positive.
    negative = torch.where(x > 0, 0.0, x)
    return torch.where(x > 0, scale * x, scale * alpha * torch.expm1(negative * sharpness))


def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    z = x * beta
    return torch.where(z > threshold, x, _log_of_one_plus_exp(z) / beta)


def _log_of_one_plus_exp(z: Any) -> Any:
    # At 0 the derivatives of the two terms are 0 and 1/2. Their sum is the derivative of softplus.
    return torch.where(z > 0, z, 0.0) + torch.log1p(torch.exp(torch.where(z > 0, -z, z)))


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return x * 0.5 * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))))
    return x * 0.5 * (1.0 + torch.erf(x * math.sqrt(0.5)))


def _sinh(x: Any) -> Any:
    return 0.5 * (torch.expm1(x) - torch.expm1(-x))


def _mean(x: Any, dim: int, keepdim: bool) -> Any:
    return torch.sum(x, dim, keepdim=keepdim) / x.units


def _var(x: Any, dim: int, unbiased: bool = True, keepdim: bool = False, correction: int = 1) -> Any:
    distance = x - _mean(x, dim, keepdim)
    return torch.sum(distance * distance, dim, keepdim=keepdim) / (x.units - (correction if unbiased else 0))


COMPOSED: dict[str, Callable[..., Any]] = {
    "add": lambda x, other, alpha=1: x + other * alpha,
    "sub": lambda x, other, alpha=1: x - other * alpha,
    "rsub": lambda x, other, alpha=1: other - x * alpha,
    "addcmul": lambda x, a, b, value=1: x + value * (a * b),
    "addcdiv": lambda x, a, b, value=1: x + value * (a / b),
    "lerp": lambda x, end, weight: x + weight * (end - x),
    "gt": lambda x, other: other < x,
    "ge": lambda x, other: other <= x,
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1.0 / x,
    "exp2": lambda x: torch.exp(x * math.log(2.0)),
    "log2": lambda x: torch.log(x) * (1.0 / math.log(2.0)),
    "log10": lambda x: torch.log(x) * (1.0 / math.log(10.0)),
    "sinh": _sinh,
    "cosh": lambda x: 0.5 * (torch.exp(x) + torch.exp(-x)),
    "erfc": lambda x: 1.0 - torch.erf(x),
    "logit": lambda x: torch.log(x / (1.0 - x)),
    "hypot": lambda x, y: torch.sqrt(x * x + y * y),
    "relu": lambda x: torch.where(x <= 0, 0.0, x),
    "relu6": lambda x: _hardtanh(x, 0.0, 6.0),
    "leaky_relu": lambda x, negative_slope=0.01: torch.where(x > 0, x, negative_slope * x),
    "threshold": lambda x, threshold, value: torch.where(x <= threshold, value, x),
    "hardtanh": _hardtanh,
    "hardsigmoid": lambda x: torch.where(x <= -3, 0.0, torch.where(x >= 3, 1.0, x / 6.0 + 0.5)),
    "hardswish": lambda x: torch.where(x <= -3, 0.0, torch.where(x >= 3, x, x * (x + 3.0) / 6.0)),
    "hardshrink": lambda x, lambd=0.5: torch.where((x >= -lambd) & (x <= lambd), 0.0, x),
    "softshrink": lambda x, lambd=0.5: torch.where(x > lambd, x - lambd, torch.where(x < -lambd, x + lambd, 0.0 * x)),
    "tanhshrink": lambda x: x - torch.tanh(x),
    "softsign": lambda x: x / (1.0 + torch.abs(x)),
    "softplus": _softplus,
    "logsigmoid": lambda x: -_log_of_one_plus_exp(-x),
    "silu": lambda x: x * torch.sigmoid(x),
    "mish": lambda x: x * torch.tanh(_softplus(x)),
    "gelu": _gelu,
    "elu": _elu,
    "celu": lambda x, alpha=1.0: _elu(x, alpha, sharpness=1.0 / alpha),
    "selu": lambda x: _elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946),
    "clamp": _clamp,
    "clamp_min": lambda x, min: _clamp(x, min),
    "clamp_max": lambda x, max: _clamp(x, max=max),
    "logaddexp": lambda x, y: y + _log_of_one_plus_exp(x - y),
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
    "bitwise_not": "invert",
}  # fmt: skip
"""torch's other names for the functions above."""
