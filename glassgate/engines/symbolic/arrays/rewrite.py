"""Expansion of graphs over named axes into primitive operations."""

from collections.abc import Iterable
from typing import Any

from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.operations import OPERATIONS, PRIMITIVES
from glassgate.engines.symbolic.rewrite import rewrite_graph
from glassgate.engines.symbolic.values import topological_order


def in_primitives(results: Iterable[Value]) -> dict[Value, Value]:
    """Rewrite results in primitive operations, without "detach". Return the new value of each result.

    Differentiate a step first: "detach" stops gradients.
    """
    new = {value: value for value in results}
    while any(_is_rewritten(value) for value in topological_order(list(new.values()))):
        composed = rewrite_graph(new.values(), _in_primitives)
        merged = rewrite_graph(composed[value] for value in new.values())
        new = {old: merged[composed[value]] for old, value in new.items()}
    return new


def _is_rewritten(value: Value) -> bool:
    return isinstance(value.op, str) and (value.op == "detach" or value.op not in PRIMITIVES)


def _in_primitives(value: Value, args: tuple[Any, ...]) -> Value | None:
    if not isinstance(value.op, str):
        return None
    if value.op == "detach":
        argument: Value = args[0]
        return argument
    compose = OPERATIONS[value.op].composed
    result: Value | None = compose(*args) if compose else None
    return result
