"""Differentiates a graph. The gradient is another graph, built from the derivative of each operation."""

import operator
from collections import defaultdict
from functools import reduce

from glassgate.engines.axes import PER_ROW, PROJECTED, UNITS, Axis
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, ordered, row_sum, spread
from glassgate.engines.symbolic.operations import OPERATIONS


def gradients(
    cell: Equations, states: list[Node], column: dict[Node, int], replay: dict[Node, Node]
) -> dict[Node, Node]:
    """The gradient of each node of the forward graph.

    Args:
        cell: the equations.
        states: the new states.
        column: the column of each recurrent product.
        replay: for each node of the forward graph, the node of the backward graph with the same value.
    """
    parts: defaultdict[Node, list[Node]] = defaultdict(list)
    """The terms of the gradient of each node."""
    over_units: defaultdict[tuple[Node, Axis], list[Node]] = defaultdict(list)
    """For nodes with one number per row, the terms whose sum over the units of an axis is part of the gradient."""
    transposed: defaultdict[Node, list[tuple[Node, Node]]] = defaultdict(list)
    """For each row vector, the recurrent products that read it, each with its gradient."""
    for name, state in zip(cell.state, states, strict=True):
        parts[state].append(Node("grad", (name,), state.axis))
    d: dict[Node, Node] = {}
    for node in reversed(ordered(states)):
        if node in transposed:
            products, d_products = zip(*sorted(transposed[node], key=lambda pair: column[pair[0]]), strict=True)
            gates = tuple(product.args[0] for product in products)
            parts[node].append(Node("hh_t", (gates, *d_products), node.axis))
        for axis in (UNITS, PROJECTED):
            if (node, axis) in over_units:
                total = reduce(operator.add, over_units[node, axis])
                parts[node].append(total * Node("size", (axis,), PER_ROW) if total.axis == PER_ROW else row_sum(total))
        if node not in parts:
            continue
        total = d[node] = reduce(operator.add, parts[node])
        if total.name is None and node.name is not None:
            total.name = f"d_{node.name}"
        if node.op in ("hh", "sum"):
            transposed[node.args[1]].append((node, spread(total, UNITS)))
        elif node.op == "hr":
            parts[node.args[0]].append(Node("hr_t", (spread(total, PROJECTED),), UNITS))
        elif node.op == "row_sum":
            parts[node.args[0]].append(total)
        elif derivative := node.op in OPERATIONS and OPERATIONS[node.op].derivative:
            args = [replay[arg] if isinstance(arg, Node) else arg for arg in node.args]
            for arg, part in zip(node.args, derivative(total, replay[node], *args), strict=True):
                if isinstance(arg, Node) and isinstance(part, Node):
                    (over_units[arg, node.axis] if arg.axis == PER_ROW != node.axis else parts[arg]).append(part)
    return d
