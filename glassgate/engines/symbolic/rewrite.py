"""Rewriting of graphs: merging of equal nodes, replacement of nodes, unique names."""

from collections.abc import Callable, Iterable
from typing import Any

from glassgate.engines.symbolic.graph import Node, topological_order


def rewrite_graph(
    results: Iterable[Node], rule: Callable[[Node, tuple[Any, ...]], Node | None] | None = None
) -> dict[Node, Node]:
    """Rebuild the graph of some results, with equal nodes merged. Return the new node of each old node.

    Args:
        results: the results; only nodes that they depend on are rebuilt.
        rule: takes an old node and its arguments in the new graph, and returns the replacement; None for a copy of the
            node with these arguments. Without a rule, every node is copied.
    """
    new: dict[Node, Node] = {}
    by_content: dict[tuple[Any, ...], Node] = {}
    for node in topological_order(results):
        args = tuple(new[arg] if isinstance(arg, Node) else arg for arg in node.args)
        replacement = rule(node, args) if rule else None
        if replacement is None:
            replacement = Node(node.op, args, node.axis)
        key = (
            replacement.op,
            replacement.axis,
            *(id(arg) if isinstance(arg, Node) else arg for arg in replacement.args),
        )
        new[node] = by_content.setdefault(key, replacement)
        new[node].name = new[node].name or node.name
    return new


def make_names_unique(results: Iterable[Node]) -> None:
    """Append "_" to names of nodes that the results depend on, until each name is unique."""
    taken: set[str] = set()
    for node in topological_order(results):
        if node.name is not None:
            while node.name in taken:
                node.name += "_"
            taken.add(node.name)
