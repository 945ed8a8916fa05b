"""Every operation that kernels support, the values with which it is tested, and cells that compute them.

`compare.py` compares the results with torch. The tests run the cells on the engines and as exports.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import glassgate as gg
from glassgate.engines.symbolic.operations import PRIMITIVES

Function = Callable[..., Any]


def as_number(mask: Any, x: Any) -> Any:
    """A mask as ones and zeros."""
    return torch.where(mask, torch.ones_like(x), torch.zeros_like(x))


UNARY: dict[str, Function] = {
    "neg": torch.neg,
    "detach": torch.detach,
    "abs": torch.abs,
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "atan": torch.atan,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "logical_not": lambda x: as_number(torch.logical_not(x), x),
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "exp2": torch.exp2,
    "log2": torch.log2,
    "log10": torch.log10,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "erfc": torch.erfc,
    "logit": torch.logit,
    "logit__eps": lambda x: torch.logit(x, 0.1),
    "relu": torch.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "threshold": lambda x: F.threshold(x, 0.5, -2.0),
    "hardtanh": F.hardtanh,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "softplus": F.softplus,
    "softplus__sharp": lambda x: F.softplus(x, 2.0, 5.0),
    "logsigmoid": F.logsigmoid,
    "silu": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "gelu__tanh": lambda x: F.gelu(x, approximate="tanh"),
    "elu": F.elu,
    "elu__steep": lambda x: F.elu(x, 1.5),
    "celu": lambda x: F.celu(x, 0.75),
    "selu": F.selu,
    "clamp": lambda x: torch.clamp(x, -0.5, 2.0),
    "clamp_min": lambda x: torch.clamp_min(x, -0.5),
    "clamp_max": lambda x: torch.clamp_max(x, 2.0),
    "pow__3": lambda x: x**3,
    "pow__minus_1": lambda x: x**-1,
    "pow__minus_2": lambda x: x**-2,
    "pow__half": lambda x: x**0.5,
    "pow__minus_three_halves": lambda x: x**-1.5,
    "pow__of_2": lambda x: 2.0**x,
    "pow__of_0": lambda x: 0.0**x,
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "full_like": lambda x: torch.full_like(x, 0.5),
    "rsub": lambda x: torch.rsub(x, 1.0, alpha=0.5),
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "asin": torch.asin,
    "acos": torch.acos,
    "sinc": torch.sinc,
    "nan_to_num": lambda x: torch.nan_to_num(x, 0.5, 2.0, -2.0),
}
"""Functions of one value, by the name of the operation; a digit or a word after "__" distinguishes variants."""

BINARY: dict[str, Function] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "where": lambda x, y: torch.where(x < y, x, y),
    "lt": lambda x, y: as_number(x < y, x),
    "le": lambda x, y: as_number(x <= y, x),
    "gt": lambda x, y: as_number(x > y, x),
    "ge": lambda x, y: as_number(x >= y, x),
    "eq": lambda x, y: as_number(x == y, x),
    "ne": lambda x, y: as_number(x != y, x),
    "logical_and": lambda x, y: as_number(torch.logical_and(x, y), x),
    "logical_or": lambda x, y: as_number(torch.logical_or(x, y), x),
    "logical_xor": lambda x, y: as_number(torch.logical_xor(x, y), x),
    "bitwise_and": lambda x, y: as_number((x < 1) & (y < 1), x),
    "bitwise_or": lambda x, y: as_number((x < 1) | (y < 1), x),
    "bitwise_xor": lambda x, y: as_number((x < 1) ^ (y < 1), x),
    "invert": lambda x, y: as_number(~(x < y), x),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
    "lerp__tensor": lambda x, y: torch.lerp(x, y, y),
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "clamp__tensor": lambda x, y: torch.clamp(x, min=y),
    "clamp__both": lambda x, y: torch.clamp(x, min=y, max=torch.neg(y)),
    "atan2": torch.atan2,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "remainder__operator": lambda x, y: x % y,
    "copysign": torch.copysign,
}
"""Functions of two values."""

FUNCTIONS = UNARY | BINARY
IN_OTHER_TESTS = frozenset({"mean", "var"})
"""Reductions. Their sums are exported as loops."""
POSITIVE = [
    0.0, 1e-30, 1e-12, 1e-8, 3e-5, 1e-3, 0.1, 0.5, 0.9, 0.99999, 1.0, 1.00001, 1.5, 2.0, 2.5, 3.0, math.pi, 5.0, 6.5,
    8.8, 9.1, 12.0, 17.0, 20.5, 30.0, 45.0, 87.0, 88.9, 90.0, 103.9, 110.0, 708.0, 712.0, 750.0, 4097.0, 1e5, 1e9,
    1.9e19, 1e30, math.inf,
]  # fmt: skip


def operation_of(name: str) -> str:
    """The operation of an entry of the table."""
    return name.partition("__")[0]


def values(dtype: torch.dtype) -> Tensor:
    """The tested values: both signs of all numbers, of subnormal numbers and of the largest number, and NaN."""
    limits = torch.finfo(dtype)
    positive = [limits.tiny * limits.eps, limits.tiny / 2, limits.tiny, *POSITIVE, limits.max / 4, limits.max]
    if dtype == torch.float64:
        positive += [3e-160, 1.5e154, 1e200, 1e300]
    return torch.tensor([sign * number for number in positive for sign in (1, -1)] + [math.nan], dtype=dtype)


def grid(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """All pairs of values: x along the columns, y along the rows."""
    each = values(dtype)
    return each.repeat(len(each), 1), each[:, None].repeat(1, len(each))


class EveryOperation(gg.Cell):
    """Each function replaces its own state by its result, so that it reads exact values and has its own gradient.

    The states are h, and for each function its first argument x_NAME and, if it has two, its second argument y_NAME.
    """

    gates = ("g",)
    recurrent = False

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.state = ("h", *(f"{axis}_{name}" for name in names for axis in ("xy" if name in BINARY else "x")))

    def step(self, a: Any, s: Any) -> Any:
        results = [a.g]
        for name in self.names:
            x = getattr(s, f"x_{name}")
            if name in BINARY:
                y = getattr(s, f"y_{name}")
                results += [BINARY[name](x, y), y]
            else:
                results.append(UNARY[name](x))
        return tuple(results)


def layer_of(names: tuple[str, ...], dtype: torch.dtype) -> gg.Recurrent:
    """A layer with one unit per tested value. Its input has no effect."""
    layer = gg.Recurrent(EveryOperation(names), 1, len(values(dtype)), bias=False, dtype=dtype)
    layer.requires_grad_(False).weight_ih_l0.fill_(0.0)
    return layer


def initial_states(layer: gg.Recurrent) -> dict[str, Tensor]:
    """The initial value of each state, with one row for each value of y."""
    x, y = grid(layer.weight_ih_l0.dtype)
    return {
        name: torch.zeros_like(x) if name == "h" else x.clone() if name[0] == "x" else y.clone()
        for name in layer.cell.state
    }


PRIMITIVE = tuple(name for name in FUNCTIONS if name in PRIMITIVES)
GROUPS = [tuple(FUNCTIONS)[k::6] for k in range(6)]
"""The table in parts, because the time to compile a kernel grows faster than its number of operations."""
