"""The values that the forward pass saves for the backward pass: those that are cheaper to read than to recompute."""

from collections import Counter
from collections.abc import Collection
from itertools import count

from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.graph import Graph, Key, Node, ordered
from glassgate.engines.symbolic.rewrite import distinguish, merged


def reading(
    outputs: dict[Key, Node], columns: dict[Key, Node], states: list[Node], again: dict[Node, Node], costs: Costs
) -> tuple[Graph, dict[Key, Node]]:
    """The backward graph that reads every value that is cheaper to save than to recompute, and these values.

    Args:
        outputs: the results of the graph that reads as few values as possible.
        columns: the values which that graph reads.
        states: the results of the forward graph.
        again: for a node of the forward graph, the node that recomputes it in the backward graph.
        costs: of the backend.
    """
    columns = _cheaper(columns, states, again, outputs.values(), costs)
    leaf = {again[node]: Node("saved", key, node.axis) for key, node in columns.items() if node in again}
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
    distinguish(backward.outputs.values())
    return backward, saved


def _cheaper(
    columns: dict[Key, Node], states: list[Node], again: dict[Node, Node], results: Collection[Node], costs: Costs
) -> dict[Key, Node]:
    """Saved values by column: costly values replace pre-activations that only they read; costly states and others."""
    kept, users, users_again = dict(columns), _only_users(states), _only_users(results)
    for key, node in columns.items():
        while key[0] in ("ih", "hh") and node in users and node in again:
            user = again.get(users[node])
            if user is None or users_again.get(again[node]) is not user:
                break
            node = users[node]
            if costs.of(node.op) > costs.read:
                kept[key] = node
    found = set(kept.values())
    for k, state in enumerate(states):
        if state in again and state not in found and costs.of(state.op) > costs.read:
            kept["state", k] = state
    found = set(kept.values())
    for k, node in enumerate(ordered(states)):
        if node in again and node not in found and node.axis == "H" and costs.of(node.op) > costs.keep:
            kept["kept", k] = node
    return kept


def _only_users(results: Collection[Node]) -> dict[Node, Node]:
    """For each value with a single reader, that reader."""
    reads = Counter(results)
    users = {}
    for node in ordered(results):
        for arg in node.inputs:
            reads[arg] += 1
            users[arg] = node
    return {arg: user for arg, user in users.items() if reads[arg] == 1}
