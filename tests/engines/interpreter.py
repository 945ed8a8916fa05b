"""Evaluates a traced graph in plain torch, for the rows of one step."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.axes import PROJECTED, UNITS
from glassgate.engines.reference_step import recurrent_product
from glassgate.engines.symbolic import evaluate as symbolic
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.trace import Graph


def evaluate(
    graph: Graph, cell: Cell, weights: Mapping[str, Tensor], leaf: Callable[[Node], Tensor]
) -> dict[Node, Tensor]:
    """Return the value of every node, (N, units) or (N, 1).

    Args:
        graph: a forward or backward graph of the cell.
        weights: the layer's parameters by name; `bias_hh` belongs to the recurrent products.
        leaf: returns the value of a leaf or of a saved value.
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
            case ops.RecurrentHalf(gate):
                return rows(gate, *args)
            case ops.PreActivation(gate):
                return leaf(Node(ops.InputHalf(gate), (), UNITS)) + rows(gate, *args)
            case ops.Projection():
                return args[0] @ weights["weight_hr"].T
            case ops.RecurrentTranspose(gates):
                return transposed(gates, *args)
            case ops.ProjectionTranspose():
                return args[0] @ weights["weight_hr"]
            case ops.RowSum():
                return args[0].sum(-1, keepdim=True)
            case ops.Size(axis):
                return torch.tensor(float(units[UNITS if axis == UNITS.name else PROJECTED]), dtype=torch.float64)
            case ops.Constant(number):
                return torch.full((units.get(node.axis, 1),), number, dtype=torch.float64)
            case _:
                return leaf(node)

    return symbolic.evaluate(graph.nodes, compute, torch.float64)
