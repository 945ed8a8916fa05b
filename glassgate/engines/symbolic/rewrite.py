"""Rewriting of graphs: equal nodes merged, some replaced, names made unique."""

from collections.abc import Callable, Iterable
from typing import Any

from glassgate.engines.symbolic.graph import Node, ordered


def merged(
    results: Iterable[Node], rule: Callable[[Node, tuple[Any, ...]], Node | None] | None = None
) -> dict[Node, Node]:
    """Each node that the results need, with equal nodes merged; `rule` may replace a node, given its new arguments."""
    new: dict[Node, Node] = {}
    known: dict[tuple[Any, ...], Node] = {}
    for node in ordered(results):
        args = tuple(new[arg] if isinstance(arg, Node) else arg for arg in node.args)
        copy = rule(node, args) if rule else None
        if copy is None:
            copy = Node(node.op, args, node.axis)
        key = (copy.op, copy.axis, *(id(arg) if isinstance(arg, Node) else arg for arg in copy.args))
        new[node] = known.setdefault(key, copy)
        new[node].name = new[node].name or node.name
    return new


def distinguish(results: Iterable[Node]) -> None:
    """Makes the names of all nodes that the results need differ."""
    taken: set[str] = set()
    for node in ordered(results):
        if node.name is not None:
            while node.name in taken:
                node.name += "_"
            taken.add(node.name)
