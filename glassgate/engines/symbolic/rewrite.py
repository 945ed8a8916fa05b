"""Rewriting of graphs: merging of equal values, replacement of values, unique names."""

from collections.abc import Callable, Iterable
from typing import Any

from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.values import S, Symbolic, topological_order


def rewrite_graph(results: Iterable[S], rule: Callable[[S, tuple[Any, ...]], S | None] | None = None) -> dict[S, S]:
    """Rebuild the graph of some results, with equal values merged. Return the new value of each old value.

    Args:
        results: the results; only values that they depend on are rebuilt.
        rule: takes an old value and its arguments in the new graph, and returns the replacement; None for a copy of the
            value with these arguments. Without a rule, every value is copied.
    """
    new: dict[S, S] = {}
    by_content: dict[tuple[Any, ...], S] = {}
    for value in topological_order(results):
        args = tuple(new[arg] if isinstance(arg, type(value)) else arg for arg in value.args)
        replacement = rule(value, args) if rule else None
        if replacement is None:
            replacement = value.with_args(args)
        contents = (id(arg) if isinstance(arg, Symbolic) else arg for arg in replacement.args)
        new[value] = by_content.setdefault((replacement.form, *contents), replacement)
        new[value].name = new[value].name or value.name
    return new


def make_names_unique(results: Iterable[Node]) -> None:
    """Append "_" to names of nodes that the results depend on, until each name is unique."""
    taken: set[str] = set()
    for value in topological_order(results):
        if value.name is not None:
            while value.name in taken:
                value.name += "_"
            taken.add(value.name)
