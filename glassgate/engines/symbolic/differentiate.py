"""Differentiates a graph. The gradient is another graph, built from the derivative of each operation."""

import operator
from collections import defaultdict
from functools import reduce

from glassgate.engines.axes import PER_ROW, PROJECTED, UNITS, Axis
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, broadcast, gate_of, leaf, row_sum, size
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
        terms[state].append(leaf(ops.Gradient(name), state.axis))
    d: dict[Node, Node] = {}
    for node in reversed(topological_order(states)):
        if node in products_of:
            products, d_products = zip(*sorted(products_of[node], key=lambda pair: column[pair[0]]), strict=True)
            transpose = ops.RecurrentTranspose(tuple(map(gate_of, products)))
            terms[node].append(Node(transpose, d_products, node.axis))
        for axis in (UNITS, PROJECTED):
            if (node, axis) in terms_over_units:
                total = reduce(operator.add, terms_over_units[node, axis])
                terms[node].append(total * size(axis) if total.axis == PER_ROW else row_sum(total))
        if node not in terms:
            continue
        total = d[node] = reduce(operator.add, terms[node])
        if total.name is None and node.name is not None:
            total.name = f"d_{node.name}"
        match node.op:
            case ops.Product():
                products_of[node.inputs[0]].append((node, broadcast(total, UNITS)))
            case ops.Projection():
                terms[node.inputs[0]].append(Node(ops.ProjectionTranspose(), (broadcast(total, PROJECTED),), UNITS))
            case ops.RowSum():
                terms[node.inputs[0]].append(total)
        derivative = OPERATIONS[node.op].derivative if isinstance(node.op, str) else None
        if derivative is not None:
            args = [replay[arg] if isinstance(arg, Node) else arg for arg in node.args]
            for arg, term in zip(node.args, derivative(total, replay[node], *args), strict=True):
                if isinstance(arg, Node) and isinstance(term, Node):
                    is_broadcast = arg.axis == PER_ROW != node.axis
                    (terms_over_units[arg, node.axis] if is_broadcast else terms[arg]).append(term)
    return d
