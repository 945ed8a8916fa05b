"""Selects the values that the forward pass saves, because reading them is cheaper than recomputing them."""

from collections import Counter
from collections.abc import Collection
from itertools import count

from glassgate.engines.axes import UNITS
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.graph import Graph, Key, Node, ordered
from glassgate.engines.symbolic.rewrite import make_names_unique, merged


def with_saved_values(
    outputs: dict[Key, Node], columns: dict[Key, Node], states: list[Node], recomputed: dict[Node, Node], costs: Costs
) -> tuple[Graph, dict[Key, Node]]:
    """The backward graph, which reads saved values where this is cheaper than recomputing them, and these values.

    Args:
        outputs: the results of the backward graph that reads as few values as possible.
        columns: the values that this graph reads, by column.
        states: the results of the forward graph.
        recomputed: for a node of the forward graph, the node that recomputes it in the backward graph.
        costs: the costs of the backend.

    Returns:
        the backward graph, and the saved values by column.
    """
    columns = _columns_to_save(columns, states, recomputed, outputs.values(), costs)
    leaf = {recomputed[node]: Node("saved", key, node.axis) for key, node in columns.items() if node in recomputed}
    new = merged(outputs.values(), lambda node, args: leaf.get(node))
    backward = Graph({key: new[node] for key, node in outputs.items()})
    saved, others = {}, count()
    for node in sorted((node for node in backward.nodes if node.op == "saved"), key=lambda node: node.args):
        value = columns[node.args]
        if node.args[0] == "kept":
            node.args = "kept", next(others)
        saved[node.args], node.name = value, value.name
    for node in backward.nodes:
        if node.op == "grad" and node.name is None:
            node.name = f"d_{node.args[0]}_out"
    make_names_unique(backward.outputs.values())
    return backward, saved


def _columns_to_save(
    columns: dict[Key, Node], states: list[Node], recomputed: dict[Node, Node], results: Collection[Node], costs: Costs
) -> dict[Key, Node]:
    """The values to save, by column: those of `columns`, and the results of costly operations.

    If a costly operation is the only reader of a pre-activation, its result is saved in place of the pre-activation.
    """
    kept, readers, backward_readers = dict(columns), _single_readers(states), _single_readers(results)
    for key, node in columns.items():
        while key[0] in ("ih", "hh") and node in readers and node in recomputed:
            reader = recomputed.get(readers[node])
            if reader is None or backward_readers.get(recomputed[node]) is not reader:
                break
            node = readers[node]
            if costs.of(node.op) > costs.read:
                kept[key] = node
    saved = set(kept.values())
    for k, state in enumerate(states):
        if state in recomputed and state not in saved and costs.of(state.op) > costs.read:
            kept["state", k] = state
    saved = set(kept.values())
    for k, node in enumerate(ordered(states)):
        if node in recomputed and node not in saved and node.axis == UNITS and costs.of(node.op) > costs.keep:
            kept["kept", k] = node
    return kept


def _single_readers(results: Collection[Node]) -> dict[Node, Node]:
    """The reader of each value that only one node reads."""
    reads = Counter(results)
    readers = {}
    for node in ordered(results):
        for arg in node.inputs:
            reads[arg] += 1
            readers[arg] = node
    return {arg: reader for arg, reader in readers.items() if reads[arg] == 1}
