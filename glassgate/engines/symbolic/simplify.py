"""Algebraic simplification of one operation: constant folding, neutral elements, cheaper equivalents."""

import math
from typing import Any

import torch

from glassgate.engines.symbolic.operations import OPERATIONS

_NEUTRAL = {("add", 0): 0.0, ("add", 1): 0.0, ("sub", 1): 0.0, ("mul", 0): 1.0, ("mul", 1): 1.0, ("div", 1): 1.0}
"""The neutral element by operation and index of the argument."""
_SMALL_POWERS = frozenset({*range(-8, 9)} - {0})


def simplify(op: str, *args: Any) -> Any:
    """A simpler node or number that has the same value as an operation; None if there is none.

    Args:
        op: a name of `OPERATIONS`.
        args: the arguments of the operation: nodes of a graph or floats.
    """
    numbers = [arg for arg in args if isinstance(arg, float)]
    if len(numbers) == len(args):
        return _fold_constants(op, *numbers)
    for k, arg in enumerate(args):
        if isinstance(arg, float) and _NEUTRAL.get((op, k)) == arg:
            return args[1 - k]
    first, last = args[0], args[-1]
    match op:
        case "neg" if not isinstance(first, float) and first.op == "neg":
            return first.args[0]
        case "add" if not isinstance(last, float) and last.op == "neg":
            return first - last.args[0]
        case "sub" if not isinstance(last, float) and last.op == "neg":
            return first + last.args[0]
        case "div" if isinstance(last, float) and abs(math.frexp(last)[0]) == 0.5 and 2.0**-99 < abs(last) < 2.0**99:
            return first * (1.0 / last)
        case "pow" if isinstance(last, float) and last == 0 and not isinstance(first, float):
            return first.constant_like(1.0)
        case "pow" if isinstance(last, float) and last == 0.5:
            return torch.sqrt(first)
        case "pow" if isinstance(last, float) and last in _SMALL_POWERS:
            base = first if last > 0 else 1.0 / first
            return math.prod([base] * (int(abs(last)) - 1), start=base)
        case "where" if isinstance(first, float):
            return args[1] if first else last
    return None


def _fold_constants(op: str, *args: float) -> float:
    tensors = [torch.tensor(arg, dtype=torch.float64, device="cpu") for arg in args]
    if op == "where":
        tensors[0] = tensors[0] != 0
    return float(OPERATIONS[op].compute(*tensors))
