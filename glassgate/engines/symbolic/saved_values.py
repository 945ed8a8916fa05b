"""Selects the values that the forward pass saves, because reading them is cheaper than recomputing them."""

from collections import Counter
from collections.abc import Collection
from itertools import count

from glassgate.engines.axes import UNITS, Axis
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.graph import Graph, Key, Node, SavedKey
from glassgate.engines.symbolic.rewrite import make_names_unique, rewrite_graph
from glassgate.engines.symbolic.values import topological_order


def read_saved_values(
    outputs: dict[Key, Node],
    columns: dict[SavedKey, Node],
    states: list[Node],
    recomputed: dict[Node, Node],
    costs: Costs,
) -> tuple[Graph, dict[SavedKey, Node]]:
    """Rewrite a backward graph to read saved values where this is cheaper than recomputing them.

    Args:
        outputs: the results of a backward graph that recomputes as much as possible.
        columns: the nodes of the forward graph that this backward graph reads. The keys identify the saved values.
        states: the new states, which are the results of the forward graph.
        recomputed: for each node of the forward graph, the node of the backward graph that recomputes it.
        costs: the costs of the backend.

    Returns:
        the new backward graph, and the nodes of the forward graph whose values it reads, with the same keys.
    """
    columns = _select_columns(columns, states, recomputed, outputs.values(), costs)
    leaves = {recomputed[node]: saved_value(key, node.axis) for key, node in columns.items() if node in recomputed}
    new = rewrite_graph(outputs.values(), lambda node, args: leaves.get(node))
    backward = Graph({key: new[node] for key, node in outputs.items()})
    saved, kept_indices = {}, count()
    for node in sorted((node for node in backward.nodes if node.op == "saved"), key=lambda node: node.key):
        value = columns[node.key]
        if node.label == "kept":
            node.args = (next(kept_indices),)
        saved[node.key], node.name = value, value.name
    for node in backward.nodes:
        if node.op == "grad" and node.name is None:
            node.name = f"d_{node.label}_out"
    make_names_unique(backward.outputs.values())
    return backward, saved


def saved_value(key: SavedKey, axis: Axis) -> Node:
    """The leaf of a backward graph for a value with this key in `Trace.saved`."""
    buffer, column = key
    return Node("saved", (column,), axis, (buffer,))


def _select_columns(
    columns: dict[SavedKey, Node],
    states: list[Node],
    recomputed: dict[Node, Node],
    results: Collection[Node],
    costs: Costs,
) -> dict[SavedKey, Node]:
    """Return the nodes whose values are saved, by column: `columns`, and the results of costly operations.

    If a costly operation is the only reader of a pre-activation, its result is saved in place of the pre-activation.
    """
    selected, readers, backward_readers = dict(columns), _single_readers(states), _single_readers(results)
    for key, node in columns.items():
        while key[0] in ("ih", "hh") and node in readers and node in recomputed:
            reader = recomputed.get(readers[node])
            if reader is None or backward_readers.get(recomputed[node]) is not reader:
                break
            node = readers[node]
            if costs.of(node.op) > costs.read:
                selected[key] = node
    saved = set(selected.values())
    for k, state in enumerate(states):
        if state in recomputed and state not in saved and costs.of(state.op) > costs.read:
            selected["state", k] = state
    saved = set(selected.values())
    for k, node in enumerate(topological_order(states)):
        if node in recomputed and node not in saved and node.axis == UNITS and costs.of(node.op) > costs.keep:
            selected["kept", k] = node
    return selected


def _single_readers(results: Collection[Node]) -> dict[Node, Node]:
    """Return the only reader of each value that has exactly one."""
    reads = Counter(results)
    readers = {}
    for node in topological_order(results):
        for arg in node.inputs:
            reads[arg] += 1
            readers[arg] = node
    return {arg: reader for arg, reader in readers.items() if reads[arg] == 1}
