"""Compares results for the values of the table with torch, except for the deviations that docs/own-cells.md lists."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from tests.mathematics.table import BINARY, FUNCTIONS, UNARY, grid

Results = dict[str, Tensor]
_UNSIGNED_ZERO = """
minimum maximum clamp clamp_min clamp_max clamp__tensor clamp__both relu relu6 hardtanh softshrink tanh tanhshrink
"""
UNSIGNED_ZERO = frozenset(_UNSIGNED_ZERO.split())
"""Functions whose result zero may have another sign than in torch."""
CANCELLING = frozenset({"tanhshrink", "gelu", "gelu__tanh", "lerp", "lerp__tensor"})
"""Functions whose error is relative to their arguments, because torch's expression subtracts nearly equal numbers."""
CANCELLING_GRADIENT = frozenset({"tanh", "expm1", "softsign", "hardswish", "gelu", "gelu__tanh"})
"""Functions whose derivative has an absolute error."""
OTHER_IN_TORCH = frozenset({"fmod", "remainder", "remainder__operator", "hardsigmoid", "hardswish"})
"""Functions for which torch in float64 is less exact: fmod and remainder of a large quotient are NaN, large results of
hardswish are infinite, and the derivative of hardsigmoid is a constant in float32."""


@dataclass(frozen=True)
class Rules:
    """The deviations of a target.

    Attributes:
        zero_signs: whether the signs of zero are compared.
        ordinary: whether only zero and numbers far from the limits of the dtype are compared.
        error: the allowed error of some functions: relative, and absolute.
    """

    zero_signs: bool = True
    ordinary: bool = False
    error: tuple[tuple[str, float, float], ...] = ()


def direct(name: str, dtype: torch.dtype, x: Tensor, y: Tensor) -> Results:
    """The results and gradients of a function in torch, for a gradient of one."""
    arguments = [v.to(dtype).clone().requires_grad_() for v in ((x, y) if name in BINARY else (x,))]
    result = FUNCTIONS[name](*arguments)
    gradients = (
        torch.autograd.grad(result, arguments, torch.ones_like(result), allow_unused=True, materialize_grads=True)
        if result.requires_grad
        else [torch.zeros_like(v) for v in arguments]
    )
    results = {f"x_{name}": result.detach()} | {f"grad {a}_{name}": g for a, g in zip("xy", gradients, strict=False)}
    if name == "sinc":  # the difference in torch's expression has no correct digit near zero
        results["grad x_sinc"] = torch.where(x.abs() < 1, _sinc_derivative(x).to(dtype), gradients[0])
    return results


def _sinc_derivative(x: Tensor) -> Tensor:
    """The derivative of sin(pi x) / (pi x) for |x| < 1, from its series in fractions."""
    pi = Fraction("3.14159265358979323846264338327950288")
    series = [(-1) ** n * 2 * n * pi ** (2 * n) / math.factorial(2 * n + 1) for n in range(1, 24)]
    near = sorted({v for v in x.flatten().tolist() if abs(v) < 1})
    exact = {v: float(sum(term * Fraction(v) ** (2 * n + 1) for n, term in enumerate(series))) for v in near}
    return torch.tensor([exact.get(v, math.nan) for v in x.flatten().tolist()], dtype=torch.float64).reshape(x.shape)


def check(got: Results, names: Iterable[str], dtype: torch.dtype, rules: Rules = Rules()) -> None:
    """Raise AssertionError if a result differs from torch.

    Args:
        got: results "x_NAME" and, if they are tested, gradients "grad x_NAME" and "grad y_NAME", one row per y.
        names: the functions.
        dtype: the dtype of the table.
        rules: the deviations of the target.
    """
    x, y = grid(dtype)
    faults = []
    for name in names:
        # torch treats NaN at the end of a tensor differently from NaN elsewhere. The second row moves it from the end.
        x_, y_ = (x[:2], y[:2]) if name in UNARY else (x, y)
        eager, truth = direct(name, dtype, x_, y_), direct(name, torch.float64, x_, y_)
        flushed, single = direct(name, dtype, _flush(x_), _flush(y_)), direct(name, torch.float32, x_, y_)
        for key in eager:
            if key not in got:
                assert key.startswith("grad"), f"no result {key}"
                continue
            value = got[key][: len(x_)]
            own = ((eager if dtype == torch.float32 else single)[key].double() - truth[key]).abs()
            own = torch.where(own < 0.5 * truth[key].abs(), own, 0.0) * (torch.finfo(dtype).eps / 2**-23)
            expected = (eager[key], truth[key].to(dtype), flushed[key])
            fits = torch.stack([_fits(name, key, value, e, own, x_, y_, rules) for e in expected]).any(0)
            fits |= _is_exempt(name, key, eager[key], x_, y_, rules)
            fits[-1] |= name in UNARY
            faults += [
                f"{key} at {x_[at]:.9g}, {y_[at]:.9g}: {value[at]:.9g} instead of {eager[key][at]:.9g}"
                for at in map(tuple, (~fits).nonzero()[:3].tolist())
            ]
    assert not faults, "\n".join(faults)


def _fits(
    name: str, key: str, value: Tensor, expected: Tensor, own: Tensor, x: Tensor, y: Tensor, rules: Rules
) -> Tensor:
    """Whether each value equals the expected one, up to rounding. `own` is the error of torch."""
    limits, is_gradient = torch.finfo(value.dtype), key.startswith("grad")
    size = x.double().abs().nan_to_num(0.0, 0.0, 0.0)
    relative, absolute = next(((r, a) for n, r, a in rules.error if n == name), (16 * limits.eps, 0.0))
    allowed = relative * expected.double().abs() + 2 * limits.tiny * (1 + size) + 10 * own + absolute
    if name in (CANCELLING_GRADIENT if is_gradient else CANCELLING):
        allowed += 4 * limits.eps * (1.0 if is_gradient else size + y.double().abs().nan_to_num(0.0, 0.0, 0.0))
    if name == "addcdiv" and rules.ordinary and not is_gradient:
        allowed += 4 * limits.eps * size  # cancels; with -ffast-math, GCC multiplies by an approximate reciprocal
    signs = value.signbit() == expected.signbit()
    if is_gradient or not rules.zero_signs or name in UNSIGNED_ZERO:
        signs = torch.ones_like(signs)
    both_zero = (value == 0) & (expected == 0)
    near = (value.double() - expected.double()).abs() <= allowed
    finite = value.isfinite() & expected.isfinite() & ~both_zero
    equal = (value.isnan() & expected.isnan()) | ((value == expected) & ~both_zero)
    return equal | (both_zero & signs) | (finite & near)


def _is_exempt(name: str, key: str, expected: Tensor, x: Tensor, y: Tensor, rules: Rules) -> Tensor:
    """Whether a deviation covers each result completely."""
    exempt = torch.zeros_like(expected, dtype=torch.bool)
    if key.startswith("grad") and name in BINARY:
        # An argument and a result inside the operation may both count as zero. In float64, torch is the only reference,
        # and its own squares are too small or infinite.
        limits = torch.finfo(expected.dtype)
        power = 1.0 if expected.dtype == torch.float32 else 0.5
        for v in (x, y):
            exempt |= (v != 0) & v.isfinite() & ((v.abs() < limits.tiny**power) | (v.abs() > limits.max**power))
    if name in OTHER_IN_TORCH and expected.dtype == torch.float64:
        exempt |= ~expected.isfinite() if name != "hardsigmoid" else torch.tensor(key.startswith("grad"))
    if name == "addcmul":  # with and without a fused multiply-add
        exempt |= (0.5 * x * y).isinf()
    if rules.ordinary:
        largest = torch.finfo(expected.dtype).max ** 0.9
        for v in (x, y, expected):
            exempt |= ~((v == 0) | ((v.abs() > 1 / largest) & (v.abs() < largest)))
    return exempt


def _flush(v: Tensor) -> Tensor:
    """The numbers with zeros in place of subnormal ones."""
    return torch.where(v.abs() < torch.finfo(v.dtype).tiny, torch.zeros_like(v), v)
