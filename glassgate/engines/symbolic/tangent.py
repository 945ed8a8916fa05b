"""The tangent of a cell: another cell, whose step also computes the directional derivatives of the states.

Each state, the term `W_ih x + b_ih` of each gate and, if requested, each parameter has a tangent leaf. The tangents of
operations follow from their derivatives. Every engine that runs a cell therefore also runs its forward-mode derivative.
The gradient of a tangent cell is a second derivative.
"""

import operator
import re
from functools import lru_cache, reduce
from typing import NamedTuple

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, broadcast, gate_of, leaf, row_sum
from glassgate.engines.symbolic.operations import OPERATIONS
from glassgate.engines.symbolic.rewrite import make_names_unique, rewrite_graph
from glassgate.engines.symbolic.values import halves_of


class TangentCell(NamedTuple):
    """A tangent cell.

    Its states are those of the cell, followed by their tangents. Its gates are, for each gate g of the cell:

    - g, with the input half `W_ih x + b_ih` and the recurrent half `W_hh u + b_hh`, as in the cell. The vector u is
      the previous output, or a value that the step computes from the previous output.
    - g_tangent, whose input half is the tangent of the input half of g, and whose recurrent half is `W_hh du`, where du
      is the tangent of u.
    - g_of_weight_tangent, whose recurrent half is `dW_hh u + db_hh`, without an input half. It exists only if
      parameters have tangents.

    A per-gate parameter of the tangent cell has a block for g_tangent, which is the tangent of its block for g. Other
    parameters have separate tangents.

    Attributes:
        equations: the equations of the tangent cell.
        suffix: the suffix of the names of tangents.
    """

    equations: Equations
    suffix: str


@lru_cache(256)
def tangent_of(cell: Equations, weights_have_tangents: bool) -> TangentCell:
    """The tangent cell of a cell without a projection.

    Args:
        cell: the equations of the cell.
        weights_have_tangents: whether the parameters have tangents too, not only the input and the initial states.
    """
    suffix = "_tangent" * (1 + max(map(_tangent_order, (*cell.gates, *cell.state, *cell.parameters))))
    rules, d = _Rules(suffix, weights_have_tangents), dict[Node, Node]()
    for node in cell.nodes:
        derivative = rules.tangent(node, d)
        if derivative is not None:
            d[node] = broadcast(derivative, node.axis)
    tangents = [d[state] if state in d else broadcast(0.0, state.axis) for state in cell.states]
    new = rewrite_graph([*cell.states, *tangents])
    states = tuple([new[state] for state in (*cell.states, *tangents)])
    make_names_unique(states)
    gate_suffixes = ("", suffix, rules.weight_suffix) if weights_have_tangents else ("", suffix)
    tangent_parameters = {
        name + suffix: p for name, p in cell.parameters.items() if weights_have_tangents and not p.per_gate
    }
    equations = Equations(
        gates=tuple([gate + s for s in gate_suffixes for gate in cell.gates]),
        state=(*cell.state, *(name + suffix for name in cell.state)),
        parameters={**cell.parameters, **tangent_parameters},
        noise=cell.noise,
        recurrent=cell.recurrent,
        heads=cell.heads,
        projected=False,
        states=states,
        gate_values={},
    )
    return TangentCell(equations, suffix)


def is_tangent(cell: Equations) -> bool:
    """Whether the equations are those of a tangent cell."""
    return _tangent_order(cell.state[-1]) > 0


def _tangent_order(name: str) -> int:
    """How many times "_tangent" is repeated at the end of a name."""
    suffix = re.search("(_tangent)*$", name)
    assert suffix is not None
    return len(suffix[0]) // len("_tangent")


class _Rules(NamedTuple):
    """The rules that give the tangents of values.

    Attributes:
        suffix: the suffix of the names of tangents.
        weights_have_tangents: whether parameters have tangents.
    """

    suffix: str
    weights_have_tangents: bool

    @property
    def weight_suffix(self) -> str:
        """The suffix of the gates whose rows of `weight_hh` contain the tangent of the cell's `weight_hh`."""
        return "_of_weight" + self.suffix

    def tangent(self, node: Node, d: dict[Node, Node]) -> Node | None:
        """The tangent of a value, from the tangents `d` of its arguments; None for zero."""
        match node.op:
            case ops.State(name) | ops.InputHalf(name):
                return leaf(type(node.op)(name + self.suffix), node.axis)
            case ops.RecurrentHalf(gate):
                return _sum(self._terms_of_product(gate, node, d))
            case ops.Parameter(name, None) if self.weights_have_tangents:
                return leaf(ops.Parameter(name + self.suffix), node.axis)
            case ops.Parameter(name, str(gate)) if self.weights_have_tangents:
                return leaf(ops.Parameter(name, gate + self.suffix), node.axis)
            case ops.RowSum():
                return row_sum(d[node.inputs[0]]) if node.inputs[0] in d else None
            case "add" if (halves := halves_of(node)) is not None:
                # Add the input half to one recurrent product, so that kernels compute both as one sum.
                ih, hh = halves
                return _sum([d[ih], *self._terms_of_product(gate_of(hh), hh, d)])
        derivative = OPERATIONS[node.op].derivative if isinstance(node.op, str) else None
        if derivative is None:
            return None
        with_tangent = [(k, arg) for k, arg in enumerate(node.args) if isinstance(arg, Node) and arg in d]
        terms = [derivative(d[arg], node, *node.args)[k] for k, arg in with_tangent]
        return _sum([term for term in terms if isinstance(term, Node)])

    def _terms_of_product(self, gate: str, hh: Node, d: dict[Node, Node]) -> list[Node]:
        """The terms of the tangent of a recurrent product."""
        (u,) = hh.inputs
        terms = [Node(ops.RecurrentHalf(gate + self.suffix), (d[u],), hh.axis)] if u in d else []
        if self.weights_have_tangents:
            terms.append(Node(ops.RecurrentHalf(gate + self.weight_suffix), (u,), hh.axis))
        return terms


def _sum(terms: list[Node]) -> Node | None:
    return reduce(operator.add, terms) if terms else None
