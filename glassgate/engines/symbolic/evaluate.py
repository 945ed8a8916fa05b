"""Evaluates a graph with torch's functions, on tensors or on nodes. Evaluation on nodes traces the graph again."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from glassgate.cell import Named, PreActivations
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.operations import OPERATIONS

_TENSORS_ONLY = frozenset({"minimum", "maximum", "lt", "le", "eq", "ne"})
"""Operations whose torch function does not accept a number as its first argument."""


def evaluate(
    nodes: Sequence[Node],
    special: Callable[[Node, tuple[Any, ...]], Any],
    dtype: torch.dtype | None = None,
    transform: Callable[[Node, Any], Any] = lambda node, value: value,
) -> dict[Node, Any]:
    """Compute the value of every node.

    Args:
        nodes: the nodes of a graph, each after its inputs.
        special: returns the value of a node that is not an elementwise operation, from the node and the values of its
            arguments.
        dtype: the dtype of the result of `where` with two numbers; None for float64.
        transform: maps each node and its value to the value that other nodes read.
    """
    values: dict[Node, Any] = {}
    for node in nodes:
        args = tuple([values[arg] if isinstance(arg, Node) else arg for arg in node.args])
        result = compute_elementwise(node.op, args, dtype) if isinstance(node.op, str) else special(node, args)
        values[node] = transform(node, result)
    return values


def argument(op: ops.Leaf, a: PreActivations, s: Named, p: Named) -> Any:
    """The value of a leaf, from the arguments of `Cell.new_state`."""
    match op:
        case ops.InputHalf(gate):
            return getattr(a.ih, gate)
        case ops.State(name):
            return getattr(s, name)
        case ops.Noise(name):
            return getattr(a.noise, name)
        case ops.Input(name):
            return getattr(a.input, name)
        case ops.Parameter(name, gate):
            value = getattr(p, name)
            return value if gate is None else getattr(value, gate)
    raise AssertionError(f"a step has no {op}")


def compute_elementwise(op: str, args: tuple[Any, ...], dtype: torch.dtype | None) -> Any:
    """The result of an elementwise operation on tensors and numbers; `dtype`: as in `evaluate`."""
    if op == "where" and isinstance(args[0], Tensor) and isinstance(args[1], float) and isinstance(args[2], float):
        mask, *numbers = args  # A tensor on the CPU would be copied to the mask's GPU, and the copy waits for the GPU.
        args = mask, *[torch.full((), x, dtype=dtype or torch.float64, device=mask.device) for x in numbers]
    elif op in _TENSORS_ONLY:
        args = tuple([torch.tensor(arg, dtype=torch.float64) if isinstance(arg, float) else arg for arg in args])
    return OPERATIONS[op].compute(*args)
