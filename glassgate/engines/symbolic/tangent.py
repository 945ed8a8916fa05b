"""The tangent of a cell: another cell, whose step also computes the directional derivatives of the states.

Each state, each input half and, if requested, each parameter has a tangent leaf. The tangents of operations follow from
their derivatives. Every engine that runs a cell therefore also runs its forward-mode derivative. The gradient of a
tangent cell is a second derivative.
"""

import operator
import re
from functools import lru_cache, reduce
from typing import NamedTuple

from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, row_sum, spread
from glassgate.engines.symbolic.operations import OPERATIONS
from glassgate.engines.symbolic.rewrite import make_names_unique, merged


class Tangent(NamedTuple):
    """A tangent cell.

    Its states are those of the cell, followed by their tangents. Its gates are, for each gate g of the cell:

    - g: `W_ih x + b_ih` and `W_hh u + b_hh`, as in the cell.
    - g_tangent: the input half is the tangent of that of g. The recurrent half is `W_hh u`, for tangents u.
    - g_of_weight_tangent: the recurrent half is `dW_hh u + db_hh`. Only if parameters have tangents.

    The tangent of a parameter without gates is another parameter.

    Attributes:
        equations: the equations of the tangent cell.
        suffix: the suffix of the names of tangents.
    """

    equations: Equations
    suffix: str


@lru_cache(256)
def tangent_of(cell: Equations, of_weights: bool) -> Tangent:
    """The tangent cell of a cell without a projection.

    Args:
        cell: the equations of the cell.
        of_weights: whether the parameters have tangents, in addition to the input and the initial states.
    """
    suffix = "_tangent" * (1 + max(map(_tangent_order, (*cell.gates, *cell.state, *cell.parameters))))
    rules, d = _Rules(suffix, of_weights), dict[Node, Node]()
    for node in cell.nodes:
        derivative = rules.tangent(node, d)
        if derivative is not None:
            d[node] = spread(derivative, node.axis)
    tangents = [d[state] if state in d else spread(0.0, state.axis) for state in cell.states]
    new = merged([*cell.states, *tangents])
    states = tuple([new[state] for state in (*cell.states, *tangents)])
    make_names_unique(states)
    blocks = ("", suffix, rules.of_weight) if of_weights else ("", suffix)
    own = {name + suffix: p for name, p in cell.parameters.items() if of_weights and not p.per_gate}
    equations = Equations(
        gates=tuple([gate + block for block in blocks for gate in cell.gates]),
        state=(*cell.state, *(name + suffix for name in cell.state)),
        parameters={**cell.parameters, **own},
        noise=cell.noise,
        recurrent=cell.recurrent,
        heads=cell.heads,
        projected=False,
        states=states,
        shown={},
    )
    return Tangent(equations, suffix)


def is_tangent(cell: Equations) -> bool:
    """Whether the equations are those of a tangent cell."""
    return _tangent_order(cell.state[-1]) > 0


def _tangent_order(name: str) -> int:
    """The number of suffixes "_tangent" of a name."""
    suffix = re.search("(_tangent)*$", name)
    assert suffix is not None
    return len(suffix[0]) // len("_tangent")


class _Rules(NamedTuple):
    """The rules that give the tangents of values.

    Attributes:
        suffix: the suffix of the names of tangents.
        of_weights: whether parameters have tangents.
    """

    suffix: str
    of_weights: bool

    @property
    def of_weight(self) -> str:
        """The suffix of the gates whose rows of `weight_hh` are the tangent of `weight_hh`."""
        return "_of_weight" + self.suffix

    def tangent(self, node: Node, d: dict[Node, Node]) -> Node | None:
        """The tangent of a value, from those of its arguments; None for zero."""
        match node.op:
            case "state" | "ih":
                return Node(node.op, (node.args[0] + self.suffix,), node.axis)
            case "hh":
                return _sum(self._of_product(node, d))
            case "parameter" if self.of_weights:
                name, gate = node.args
                args = (name + self.suffix, None) if gate is None else (name, gate + self.suffix)
                return Node("parameter", args, node.axis)
            case "row_sum":
                return row_sum(d[node.args[0]]) if node.args[0] in d else None
            case "add" if {arg.op for arg in node.inputs} == {"ih", "hh"}:
                # Add the input half to one recurrent product, so that kernels compute both as one sum.
                ih, hh = sorted(node.inputs, key=lambda arg: arg.op != "ih")
                return _sum([d[ih], *self._of_product(hh, d)])
        derivative = OPERATIONS[node.op].derivative if node.op in OPERATIONS else None
        if derivative is None:
            return None
        moved = [(k, arg) for k, arg in enumerate(node.args) if isinstance(arg, Node) and arg in d]
        parts = [derivative(d[arg], node, *node.args)[k] for k, arg in moved]
        return _sum([part for part in parts if isinstance(part, Node)])

    def _of_product(self, hh: Node, d: dict[Node, Node]) -> list[Node]:
        """The terms of the tangent of a recurrent product."""
        gate, u = hh.args
        terms = [Node("hh", (gate + self.suffix, d[u]), hh.axis)] if u in d else []
        return [*terms, Node("hh", (gate + self.of_weight, u), hh.axis)] if self.of_weights else terms


def _sum(terms: list[Node]) -> Node | None:
    return reduce(operator.add, terms) if terms else None
