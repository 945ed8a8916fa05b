"""Layer-wise relevance propagation: changes a model so that gradient times input is the relevance."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.operations import MASKS, OPERATIONS
from glassgate.engines.symbolic.ops import (
    Concatenate,
    Constant,
    CumulativeSum,
    Gather,
    Max,
    Merge,
    Parameter,
    RowSum,
    Size,
    Sum,
)
from glassgate.engines.symbolic.rewrite import make_names_unique, rewrite_graph
from glassgate.engines.symbolic.values import S, Symbolic, topological_order

MIN_MAGNITUDE = 1e-6
"""In the denominator of a relevance, values with a smaller magnitude are replaced by this number."""

_OF_SEVERAL_ELEMENTS = RowSum | Sum | Max | CumulativeSum | Gather | Merge | Concatenate
_GATES = ("sigmoid", "softmax")
_SIGNALS = ("tanh",)


class OutsideRules(TorchFunctionMode):
    """The rules for the functions of a model outside of its recurrent layers.

    A tanh passes relevance on unchanged. The results of a sigmoid or a softmax, such as attention weights, are gates.
    They receive no relevance. Linear layers, means, maxima and ReLU need no rule.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        y = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name not in (*_GATES, *_SIGNALS) or not isinstance(y, Tensor) or not y.requires_grad:
            return y
        y = y.detach()
        if name in _GATES:
            return y
        x: Tensor = args[0]
        return x * (y / x.detach().where(x.detach().abs() >= MIN_MAGNITUDE, MIN_MAGNITUDE))


def relevance_equations(equations: Equations, gates: set[Node]) -> Equations:
    """Equations whose gradient, times the input, is the relevance of the input.

    Args:
        equations: the equations of one step.
        gates: the nodes with values between 0 and 1 that only scale other values.
    """
    states = _relevance_states(equations.states, gates)
    make_names_unique(states)
    return Equations(
        equations.gates, equations.state, equations.parameters, equations.noise, equations.recurrent, equations.heads,
        equations.projected, states, {},
    )  # fmt: skip


def relevance_step(step: ArrayStep, gates: set[Value]) -> ArrayStep:
    """The same for a step of a cell that declares axes."""
    return replace(step, states=_relevance_states(step.states, gates), named={}, locals={})


def _relevance_states(states: tuple[S, ...], gates: set[S]) -> tuple[S, ...]:
    """The new states whose gradient, times the input, is the relevance of the input."""
    scales = _scaling_values(states, gates)

    def rule(node: S, copy: S) -> S | None:
        if node in scales or not node.inputs or not isinstance(node.op, str) or node.op in ("where", *MASKS):
            return None
        read = [arg if isinstance(arg, Symbolic) else None for arg in node.args]
        is_constant = [arg is None or arg in scales for arg in read]
        args: tuple[Any, ...] = copy.args
        match node.op:
            case "add" | "sub" | "neg" | "abs" | "minimum" | "maximum" | "detach":
                return None
            case "mul":
                a, b = args
                if not any(is_constant):
                    return 0.5 * (a * _detach(b)) + 0.5 * (_detach(a) * b)
                return _detach(a) * b if is_constant[0] else a * _detach(b)
            case "div":
                return args[0] / _detach(args[1])
        (x,) = [arg for arg, fixed in zip(args, is_constant, strict=True) if not fixed]
        y = node.operation(node.op, *(_detach(arg) for arg in args))
        near_zero = torch.abs(_detach(x)) < MIN_MAGNITUDE
        return x * (y / torch.where(near_zero, MIN_MAGNITUDE, _detach(x)))

    new = rewrite_graph(states, rule)
    return tuple([new[state] for state in states])


def _detach(value: Any) -> Any:
    """The same value as a constant."""
    is_number = not isinstance(value, Symbolic) or isinstance(value.op, Size | Constant)
    return value if is_number else value.operation("detach", value)


def _scaling_values(states: tuple[S, ...], gates: set[S]) -> set[S]:
    """The values that only scale others: constants, gates, and functions of these.

    A function f of a signal with f(0) != 0, such as a sigmoid or an exponential, also counts. Otherwise a signal of 0
    would get relevance.
    """
    scaling: set[S] = set()

    def is_scaling(node: S) -> bool:
        if node in gates or isinstance(node.op, Size | Constant):
            return True
        if isinstance(node.op, _OF_SEVERAL_ELEMENTS):
            return scaling.issuperset(node.inputs)
        if not isinstance(node.op, str) or node.op in MASKS:
            return False
        if all(arg in scaling or arg.op in MASKS or isinstance(arg.op, Parameter) for arg in node.inputs):
            return True
        return (
            len(node.inputs) == 1 and node.op not in ("add", "sub", "mul", "div") and _is_nonzero_at_zero(node.op, node)
        )

    for node in topological_order(states):
        if is_scaling(node):
            scaling.add(node)
    return scaling


def _is_nonzero_at_zero(op: str, node: Symbolic) -> bool:
    """Whether an elementwise function f of one value has f(0) != 0."""
    args = [torch.zeros(()) if isinstance(arg, Symbolic) else torch.tensor(arg) for arg in node.args]
    return bool(OPERATIONS[op].compute(*args) != 0)
