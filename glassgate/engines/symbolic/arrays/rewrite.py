"""Rewriting of graphs over named axes: merging of equal values, and expansion into primitive operations."""

from collections.abc import Callable, Iterable
from typing import Any

from glassgate.engines.symbolic.arrays.value import Value, topological_order
from glassgate.engines.symbolic.operations import OPERATIONS, PRIMITIVES


def rewrite(
    results: Iterable[Value], rule: Callable[[Value, tuple[Any, ...]], Value | None] | None = None
) -> dict[Value, Value]:
    """Rebuild the graph of some results, with equal values merged. Return the new value of each old value.

    Args:
        results: the results; only values that they depend on are rebuilt.
        rule: takes an old value and its arguments in the new graph, and returns the replacement; None for a copy of the
            value with these arguments. Without a rule, every value is copied.
    """
    new: dict[Value, Value] = {}
    by_content: dict[tuple[Any, ...], Value] = {}
    for value in topological_order(list(results)):
        args = tuple(new[arg] if isinstance(arg, Value) else arg for arg in value.args)
        replacement = rule(value, args) if rule else None
        if replacement is None:
            replacement = Value(value.op, args, value.axes)
        key = replacement.op, replacement.axes, *(id(a) if isinstance(a, Value) else a for a in replacement.args)
        new[value] = by_content.setdefault(key, replacement)
        new[value].name = new[value].name or value.name
    return new


def in_primitives(results: Iterable[Value]) -> dict[Value, Value]:
    """Rewrite results in primitive operations, without "detach". Return the new value of each result.

    Differentiate a step first: "detach" stops gradients.
    """
    new = {value: value for value in results}
    while any(_is_rewritten(value) for value in topological_order(list(new.values()))):
        composed = rewrite(new.values(), _in_primitives)
        merged = rewrite(composed[value] for value in new.values())
        new = {old: merged[composed[value]] for old, value in new.items()}
    return new


def _is_rewritten(value: Value) -> bool:
    return value.op == "detach" or (value.op in OPERATIONS and value.op not in PRIMITIVES)


def _in_primitives(value: Value, args: tuple[Any, ...]) -> Value | None:
    if not _is_rewritten(value):
        return None
    if value.op == "detach":
        argument: Value = args[0]
        return argument
    compose = OPERATIONS[value.op].composed
    assert compose is not None
    result: Value = compose(*args)
    return result
