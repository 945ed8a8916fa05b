"""Evaluates a graph with torch's functions, on tensors or, to trace a cell again, on other nodes."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.operations import OPERATIONS

_OF_TENSORS_ALONE = frozenset({"minimum", "maximum", "lt", "le", "eq", "ne"})
"""Operations whose torch function takes no number as its first argument."""


def evaluate(
    nodes: Sequence[Node],
    leaf: Callable[[Node, tuple[Any, ...]], Any],
    dtype: torch.dtype | None = None,
    taken: Callable[[Node, Any], Any] = lambda node, value: value,
) -> dict[Node, Any]:
    """The value of every node.

    Args:
        nodes: of one graph, each after its inputs.
        leaf: returns the value of a node that is not an elementwise operation, from it and its arguments' values.
        dtype: of a choice between two numbers; torch's default one if None.
        taken: from a node and its value to the value that its readers get.
    """
    value: dict[Node, Any] = {}
    for node in nodes:
        args = tuple([value[arg] if isinstance(arg, Node) else arg for arg in node.args])
        value[node] = taken(node, computed(node.op, args, dtype) if node.op in OPERATIONS else leaf(node, args))
    return value


def computed(op: str, args: tuple[Any, ...], dtype: torch.dtype | None) -> Any:
    """The result of an elementwise operation on tensors and numbers; `dtype` is for a choice between two numbers."""
    if op in _OF_TENSORS_ALONE or (op == "where" and isinstance(args[1], float) and isinstance(args[2], float)):
        kind = torch.float64 if dtype is None or op != "where" else dtype
        args = tuple([torch.tensor(arg, dtype=kind) if isinstance(arg, float) else arg for arg in args])
    return OPERATIONS[op].compute(*args)
