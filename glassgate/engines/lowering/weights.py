"""The weights of a direction: their axes, and the gates that multiply the input and other row vectors by them."""

from typing import NamedTuple

from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, gate_of
from glassgate.engines.symbolic.trace import Trace


class GateProducts(NamedTuple):
    """The matrix products of one row vector and the rows of some gates of `weight_ih` or `weight_hh`.

    Attributes:
        operand: the row vector of `weight_hh`; None for the input, which `weight_ih` multiplies.
        left: the number of the row vector in `Trace.left`; None for the input and for the output of the previous step.
        gates: the gates in the order of the weights.
        columns: for each gate, the column of the gradient of its product in `BackwardGraph.d_pre`.
    """

    operand: Node | None
    left: int | None
    gates: tuple[str, ...]
    columns: tuple[int, ...]


def weight_axes(cell: Equations, bias: bool) -> dict[str, tuple[str, ...]]:
    """The axes of each parameter of a direction, by name.

    Args:
        cell: the equations of the cell.
        bias: whether the layer has biases.
    """
    axes = {"weight_ih": "GHD"}
    if cell.recurrent:
        axes["weight_hh"] = "GKUV" if cell.heads > 1 else "GHJ"
    if bias:
        axes |= {"bias_ih": "GH", "bias_hh": "GH"} if cell.recurrent else {"bias_ih": "GH"}
    if cell.projected:
        axes["weight_hr"] = "PH"
    axes |= {name: "GH" if spec.per_gate else "H" for name, spec in cell.parameters.items()}
    return {name: tuple(own) for name, own in axes.items()}


def input_products(cell: Equations, trace: Trace) -> GateProducts:
    """The products of the input."""
    gates = tuple(gate for gate in cell.gates if gate in trace.ih)
    return GateProducts(None, None, gates, tuple(len(trace.hh_only) + trace.ih.index(gate) for gate in gates))


def recurrent_products(cell: Equations, trace: Trace) -> list[GateProducts]:
    """The products of each row vector that `weight_hh` multiplies."""
    columns: dict[Node, dict[str, int]] = {}
    for k, node in enumerate((*trace.hh_only, *trace.shared)):
        columns.setdefault(node.inputs[0], {}).setdefault(gate_of(node), k)
    left, products = {u: k for k, u in enumerate(trace.left)}, []
    for u, of_gate in columns.items():
        gates = tuple(gate for gate in cell.gates if gate in of_gate)
        products.append(GateProducts(u, left.get(u), gates, tuple(of_gate[gate] for gate in gates)))
    return products
