"""Differentiates a graph. The gradient is another graph, built from the derivative of each operation."""

import operator
from collections import defaultdict
from functools import reduce

from glassgate.engines.axes import PER_ROW, PROJECTED, UNITS, Axis
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, broadcast, row_sum, size
from glassgate.engines.symbolic.operations import OPERATIONS
from glassgate.engines.symbolic.values import topological_order


def gradients(
    cell: Equations, states: list[Node], column: dict[Node, int], replay: dict[Node, Node]
) -> dict[Node, Node]:
    """Build the gradient of each node of the forward graph.

    Args:
        cell: the equations.
        states: the new states.
        column: the index of each recurrent product in "d_pre", see `Trace`.
        replay: for each node of the forward graph, the node of the backward graph with the same value.
    """
    terms: defaultdict[Node, list[Node]] = defaultdict(list)
    """The terms of the gradient of each node."""
    terms_over_units: defaultdict[tuple[Node, Axis], list[Node]] = defaultdict(list)
    """For each per-row node and each axis: the terms of its gradient that are summed over the units of this axis."""
    products_of: defaultdict[Node, list[tuple[Node, Node]]] = defaultdict(list)
    """For each node that recurrent products read, pairs of a product and its gradient."""
    for name, state in zip(cell.state, states, strict=True):
        terms[state].append(Node("grad", (), state.axis, (name,)))
    d: dict[Node, Node] = {}
    for node in reversed(topological_order(states)):
        if node in products_of:
            products, d_products = zip(*sorted(products_of[node], key=lambda pair: column[pair[0]]), strict=True)
            gates = tuple(product.label for product in products)
            terms[node].append(Node("hh_t", d_products, node.axis, gates))
        for axis in (UNITS, PROJECTED):
            if (node, axis) in terms_over_units:
                total = reduce(operator.add, terms_over_units[node, axis])
                terms[node].append(total * size(axis) if total.axis == PER_ROW else row_sum(total))
        if node not in terms:
            continue
        total = d[node] = reduce(operator.add, terms[node])
        if total.name is None and node.name is not None:
            total.name = f"d_{node.name}"
        if node.op in ("hh", "sum"):
            products_of[node.inputs[0]].append((node, broadcast(total, UNITS)))
        elif node.op == "hr":
            terms[node.inputs[0]].append(Node("hr_t", (broadcast(total, PROJECTED),), UNITS))
        elif node.op == "row_sum":
            terms[node.inputs[0]].append(total)
        elif derivative := node.op in OPERATIONS and OPERATIONS[node.op].derivative:
            args = [replay[arg] if isinstance(arg, Node) else arg for arg in node.args]
            for arg, term in zip(node.args, derivative(total, replay[node], *args), strict=True):
                if isinstance(arg, Node) and isinstance(term, Node):
                    is_broadcast = arg.axis == PER_ROW != node.axis
                    (terms_over_units[arg, node.axis] if is_broadcast else terms[arg]).append(term)
    return d
