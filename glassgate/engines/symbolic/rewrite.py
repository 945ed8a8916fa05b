"""Rewriting of graphs: merging of equal values, replacement of values, primitive operations, unique names."""

from collections.abc import Callable, Iterable
from typing import Any

from glassgate.engines.symbolic.operations import OPERATIONS, PRIMITIVES
from glassgate.engines.symbolic.values import S, Symbolic, topological_order


def rewrite_graph(results: Iterable[S], rule: Callable[[S, S], S | None] | None = None) -> dict[S, S]:
    """Rebuild the graph of some results, with equal values merged. Return the new value of each old value.

    Args:
        results: the results; only values that they depend on are rebuilt.
        rule: takes an old value and its copy with arguments in the new graph, and returns the replacement of the copy,
            or None to keep the copy.
    """
    new: dict[S, S] = {}
    by_content: dict[tuple[Any, ...], S] = {}
    for value in topological_order(results):
        args = tuple(new[arg] if isinstance(arg, type(value)) else arg for arg in value.args)
        copy = value.with_args(args)
        replacement = rule(value, copy) if rule else None
        replacement = copy if replacement is None else replacement
        contents = (id(arg) if isinstance(arg, Symbolic) else arg for arg in replacement.args)
        new[value] = by_content.setdefault((replacement.form, *contents), replacement)
        new[value].name = new[value].name or value.name
    return new


def in_primitives(results: Iterable[S]) -> dict[S, S]:
    """Rewrite results in primitive operations, without "detach". Return the new value of each result.

    Differentiate a step first: "detach" stops gradients.
    """
    new = {value: value for value in results}
    while not all(map(_is_primitive, topological_order(new.values()))):
        composed = rewrite_graph(new.values(), _expand)
        merged = rewrite_graph(composed[value] for value in new.values())
        new = {old: merged[composed[value]] for old, value in new.items()}
    return new


def _is_primitive(value: Symbolic) -> bool:
    return not isinstance(value.op, str) or (value.op in PRIMITIVES and value.op != "detach")


def _expand(value: S, copy: S) -> S | None:
    compose = OPERATIONS[value.op].composed if isinstance(value.op, str) else None
    result: S | None = compose(*copy.args) if compose else without_detach(value, copy)
    return result


def without_detach(value: S, copy: S) -> S | None:
    """A rule for `rewrite_graph` that replaces "detach" by its argument, in graphs that are not differentiated."""
    return copy.inputs[0] if value.op == "detach" else None


def make_names_unique(results: Iterable[S]) -> dict[str, S]:
    """Append "_" to names of values that the results depend on, until each name is unique. Return the named values."""
    named: dict[str, S] = {}
    for value in topological_order(results):
        if value.name is not None:
            while value.name in named:
                value.name += "_"
            named[value.name] = value
    return named
