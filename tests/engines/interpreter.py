"""Evaluates a traced graph in plain torch, for the rows of one step."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.axes import PROJECTED, UNITS
from glassgate.engines.reference_step import recurrent_product
from glassgate.engines.symbolic import evaluate as symbolic
from glassgate.engines.symbolic.graph import Graph, Node
from glassgate.engines.symbolic.values import topological_order


def evaluate(
    graph: Graph, cell: Cell, weights: Mapping[str, Tensor], leaf: Callable[[Node], Tensor]
) -> dict[Node, Tensor]:
    """Return the value of every node, (N, units) or (N, 1).

    Args:
        graph: a forward or backward graph of the cell.
        weights: the layer's parameters by name; `bias_hh` belongs to the products `hh` and `sum`.
        leaf: returns the value of a leaf: a node `ih`, `state`, `parameter`, `noise`, `saved` or `grad`.
    """
    units = {UNITS: weights["weight_ih"].shape[0] // len(cell.gates), PROJECTED: len(weights.get("weight_hr", ()))}

    def rows(gate: str, u: Tensor) -> Tensor:
        product = recurrent_product(u, weights["weight_hh"], weights.get("bias_hh"), cell.heads)
        return product.chunk(len(cell.gates), -1)[cell.gates.index(gate)]

    def transposed(gates: tuple[str, ...], *d: Tensor) -> Tensor:
        by_gate = dict(zip(gates, d, strict=True))
        d_product = torch.cat([by_gate.get(gate, torch.zeros_like(d[0])) for gate in cell.gates], -1)
        u = d[0].new_zeros(len(d[0]), units[PROJECTED] or units[UNITS], requires_grad=True)
        with torch.enable_grad():
            product = recurrent_product(u, weights["weight_hh"].detach(), None, cell.heads)
        return torch.autograd.grad(product, u, d_product)[0]

    def compute(node: Node, args: tuple) -> Tensor:
        match node.op:
            case "hh":
                return rows(node.label, *args)
            case "sum":
                return leaf(Node("ih", (), UNITS, node.labels)) + rows(node.label, *args)
            case "hr":
                return args[0] @ weights["weight_hr"].T
            case "hh_t":
                return transposed(node.labels, *args)
            case "hr_t":
                return args[0] @ weights["weight_hr"]
            case "row_sum":
                return args[0].sum(-1, keepdim=True)
            case "size":
                return torch.tensor(float(units[UNITS if node.label == UNITS.name else PROJECTED]), dtype=torch.float64)
            case "constant":
                return torch.full((units.get(node.axis, 1),), args[0], dtype=torch.float64)
            case _:
                return leaf(node)

    return symbolic.evaluate(topological_order(graph.outputs.values()), compute, torch.float64)
