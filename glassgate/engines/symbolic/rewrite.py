"""Rewriting of graphs: merging of equal nodes, replacement of nodes, unique names."""

from collections.abc import Callable, Iterable
from typing import Any

from glassgate.engines.symbolic.graph import Node, ordered


def merged(
    results: Iterable[Node], rule: Callable[[Node, tuple[Any, ...]], Node | None] | None = None
) -> dict[Node, Node]:
    """Rebuild the graph of some results, with equal nodes merged. Return the new node of each old node.

    Args:
        results: the results; only nodes that they need are rebuilt.
        rule: takes an old node and its new arguments, and returns its replacement; None for a copy of the node.
    """
    new: dict[Node, Node] = {}
    by_content: dict[tuple[Any, ...], Node] = {}
    for node in ordered(results):
        args = tuple(new[arg] if isinstance(arg, Node) else arg for arg in node.args)
        copy = rule(node, args) if rule else None
        if copy is None:
            copy = Node(node.op, args, node.axis)
        key = (copy.op, copy.axis, *(id(arg) if isinstance(arg, Node) else arg for arg in copy.args))
        new[node] = by_content.setdefault(key, copy)
        new[node].name = new[node].name or node.name
    return new


def make_names_unique(results: Iterable[Node]) -> None:
    """Rename nodes that the results need, so that their names are unique."""
    taken: set[str] = set()
    for node in ordered(results):
        if node.name is not None:
            while node.name in taken:
                node.name += "_"
            taken.add(node.name)
