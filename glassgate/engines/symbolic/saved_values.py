"""Selects the values that the forward pass saves, because reading them is cheaper than recomputing them."""

from collections import Counter
from collections.abc import Collection
from itertools import count

from glassgate.engines.axes import UNITS
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.rewrite import make_names_unique, rewrite_graph
from glassgate.engines.symbolic.values import topological_order


def read_saved_values(
    results: Collection[Node],
    columns: dict[ops.Saved, Node],
    states: list[Node],
    recomputed: dict[Node, Node],
    costs: Costs,
) -> tuple[dict[Node, Node], dict[ops.Saved, Node]]:
    """Rewrite a backward graph to read saved values where this is cheaper than recomputing them.

    Args:
        results: the results of a backward graph that recomputes as much as possible.
        columns: the nodes of the forward graph that this backward graph reads. Each key is the leaf that reads it.
        states: the new states, which are the results of the forward graph.
        recomputed: for each node of the forward graph, the node of the backward graph that recomputes it.
        costs: the costs of the backend.

    Returns:
        the new node of each result, and the nodes of the forward graph that the new results read, with the leaves that
        read them.
    """
    columns = _select_columns(columns, states, recomputed, results, costs)
    leaves = {recomputed[node]: Node(key, (), node.axis) for key, node in columns.items() if node in recomputed}
    new = rewrite_graph(results, lambda node, _: leaves.get(node))
    nodes = topological_order(new[node] for node in results)
    saved, kept_numbers = {}, count()
    keys = {node: node.op for node in nodes if isinstance(node.op, ops.Saved)}
    for node, key in sorted(keys.items(), key=lambda pair: pair[1]):
        value = columns[key]
        if key.kind is ops.SavedKind.KEPT:
            node.op = key = ops.Saved(key.kind, next(kept_numbers))
        saved[key], node.name = value, value.name
    for node in nodes:
        if isinstance(node.op, ops.Gradient) and node.name is None:
            node.name = f"d_{node.op.name}_out"
    make_names_unique(new[node] for node in results)
    return new, saved


def _select_columns(
    columns: dict[ops.Saved, Node],
    states: list[Node],
    recomputed: dict[Node, Node],
    results: Collection[Node],
    costs: Costs,
) -> dict[ops.Saved, Node]:
    """Return the nodes whose values are saved: `columns`, and the results of costly operations.

    If a costly operation is the only reader of a pre-activation, its result is saved in place of the pre-activation.
    """
    selected, readers, backward_readers = dict(columns), _single_readers(states), _single_readers(results)
    for key, node in columns.items():
        while key.kind in (ops.SavedKind.INPUT, ops.SavedKind.RECURRENT) and node in readers and node in recomputed:
            reader = recomputed.get(readers[node])
            if reader is None or backward_readers.get(recomputed[node]) is not reader:
                break
            node = readers[node]
            if costs.of(node.op) > costs.read:
                selected[key] = node
    saved = set(selected.values())
    for k, state in enumerate(states):
        if state in recomputed and state not in saved and costs.of(state.op) > costs.read:
            selected[ops.Saved(ops.SavedKind.STATE, k)] = state
    saved = set(selected.values())
    for k, node in enumerate(topological_order(states)):
        if node in recomputed and node not in saved and node.axis == UNITS and costs.of(node.op) > costs.keep:
            selected[ops.Saved(ops.SavedKind.KEPT, k)] = node
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
