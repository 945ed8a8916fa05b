"""Contextual decomposition: divides every value of a step between a phrase and its context, for any cell.

A phrase is a set of input tokens. Its context is all other tokens.
"""

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import make_dual, unpack_dual

from glassgate.cell import Named, PreActivations
from glassgate.engines.axes import PER_ROW, PROJECTED, UNITS
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.evaluate import argument, compute_elementwise
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.operations import MASKS

NEITHER, PHRASE, CONTEXT, BOTH = range(4)
"""The indices of the four values of a node: from the biases alone, with the phrase, with its context, and with both."""
_LINEAR = frozenset({"add", "sub", "neg", "detach"})
_CONSTANTS = ops.Size | ops.Constant | ops.Parameter
"""Leaves that do not depend on the input."""


def four_values(phrase: Tensor, both: Tensor, neither: Tensor) -> Tensor:
    """The four values of a node, (4, *, n).

    Args:
        phrase: the phrase's part.
        both: the full value.
        neither: the value with the biases only.
    """
    return torch.stack([neither, neither + phrase, both - phrase, both])


def phrase_part(values: Tensor) -> Tensor:
    """The phrase's part: its Shapley value, with the biases always present."""
    return 0.5 * (values[PHRASE] - values[NEITHER] + values[BOTH] - values[CONTEXT])


class ContextualCell(GraphCell):
    """A cell that divides its states between a phrase and its context (Murdoch, Liu and Yu 2018, arXiv:1801.05453).

    The biases are always present. The parts of a function of one value, such as a sigmoid, are Shapley values. In a
    product, the terms phrase x phrase and phrase x biases belong to the phrase, and all other terms to the context.
    The following values are not divided, and belong completely to the context:

    - a gate that multiplies a function of a new state, such as the output gate of an LSTM
    - a divisor
    - a mask, such as the result of a comparison
    - a nonlinear function of a reduction over a row, such as the standard deviation of layer normalization

    The phrase's part of an input or a state is stored as the tangent of a dual tensor. Linear operations between layers
    therefore also apply to this part.

    Args:
        equations: the equations of one step.
        gates: the nodes whose values are gates.
        bias: the bias (gates * H,) that is added to W_ih x, or None.
    """

    def __init__(self, equations: Equations, gates: Collection[Node], bias: Tensor | None) -> None:
        super().__init__(equations)
        self._bias = {} if bias is None else dict(zip(self.gates, bias.chunk(len(self.gates)), strict=True))
        self._gate_nodes, self._dependent = gates, _depending_on_states(equations)

    def new_state(self, a: PreActivations, s: Named, p: Named, projection: Any = None) -> tuple[Any, ...]:
        """The states after a step. The tangent of each state is the phrase's part."""
        products: dict[Node, Named] = {}

        def leaf(node: Node) -> Any:
            match node.op:
                case ops.InputHalf(gate):
                    value, phrase = _value_and_phrase(getattr(a.ih, gate))
                    bias = self._bias.get(gate)
                    return four_values(
                        phrase, value, torch.zeros_like(value) if bias is None else bias.expand_as(value)
                    )
                case ops.State(name):
                    value, phrase = _value_and_phrase(getattr(s, name))
                    return four_values(phrase, value, torch.zeros_like(value))
                case ops.RecurrentHalf(gate):
                    (vector,) = node.inputs
                    if vector not in products:
                        products[vector] = a.hh(step.value(vector))
                    return getattr(products[vector], gate)
                case ops.Projection():
                    return projection(step.value(node.inputs[0]))
                case ops.RowSum():
                    return step.value(node.inputs[0]).sum(-1, keepdim=True)
                case ops.Parameter():
                    return argument(node.op, a, s, p)
                case ops.Size(axis):
                    return float(next(iter(a.ih if axis == UNITS.name else s)).shape[-1])
                case ops.Constant(number):
                    return torch.full_like(next(iter(s if node.axis == PROJECTED else a.ih)), number)
            raise AssertionError(f"a step in eval mode has no {node.op}")

        step, states = _Step(leaf, self._gate_nodes, self._dependent), set(self.equations.states)
        for node in self.equations.nodes:
            step.add(node)
            if node in states:
                step.absorb_biases(node)
        new = [step.value(node) for node in self.equations.states]
        return tuple(make_dual(values[BOTH], phrase_part(values)) for values in new)


class _Step:
    """The values of the nodes of one step.

    Args:
        leaf: returns the value of a node that is not elementwise.
        gates: the nodes whose values are gates.
        dependent: the new states other than the output, and the nodes that depend on them.
    """

    def __init__(self, leaf: Callable[[Node], Any], gates: Collection[Node], dependent: Collection[Node]) -> None:
        self._leaf, self._gate_nodes, self._dependent = leaf, gates, dependent
        self._values: dict[Node, Any] = {}
        # For each node, the only leaf or combined node from which it is computed. A node that combines several is its
        # own source, and a constant has the source None.
        self._source: dict[Node, Node | None] = {}
        self._divided: dict[Node, Tensor] = {}

    def value(self, node: Node) -> Any:
        """The four values of a node, (4, *, n), after its division into parts. A constant is returned unchanged."""
        if self._source[node] is None:
            return self._values[node]
        if node not in self._divided:
            values = self._values[node]
            self._divided[node] = four_values(phrase_part(values), values[BOTH], values[NEITHER])
        return self._divided[node]

    def absorb_biases(self, node: Node) -> None:
        """Divide a new state between the phrase and the context only. The biases become part of the context."""
        if self._source[node] is not None:
            values = self.value(node)
            self._values[node] = four_values(phrase_part(values), values[BOTH], torch.zeros_like(values[BOTH]))
            self._source[node] = node
            self._divided.pop(node)

    def add(self, node: Node) -> None:
        """Compute a node from its inputs, which must have been added before."""
        if not isinstance(node.op, str):
            self._source[node] = None if isinstance(node.op, _CONSTANTS) else node
            self._values[node] = self._leaf(node)
            return
        sources = {self._source[arg] for arg in node.inputs} - {None}
        if len(sources) < 2:
            args = [self._values[arg] if isinstance(arg, Node) else arg for arg in node.args]
            self._values[node] = compute_elementwise(node.op, tuple(args), None)
            self._source[node] = next(iter(sources), None)
        else:
            self._values[node], self._source[node] = self._combine(node, node.op), node
        if node.axis == PER_ROW and self._source[node] is not None and not self._is_linear(node):
            self._values[node], self._source[node] = _all_context(self._values[node]), node

    def _is_linear(self, node: Node) -> bool:
        """Whether the value is a linear function of the values that depend on the input."""
        constant = [not isinstance(arg, Node) or self._source[arg] is None for arg in node.args]
        return node.op in _LINEAR or (node.op == "mul" and any(constant)) or (node.op == "div" and constant[1])

    def _combine(self, node: Node, op: str) -> Tensor:
        """The four values of an operation on values with different sources."""
        args: list[Any] = [self._operand(arg) if isinstance(arg, Node) else arg for arg in node.args]
        if op == "div":
            args[1] = _all_context(args[1])
        elif op == "mul":
            for k, (arg, other) in enumerate((node.args, node.args[::-1])):
                if arg in self._gate_nodes and other in self._dependent:
                    args[k] = _all_context(args[k])
        values: Tensor = compute_elementwise(op, tuple(args), None)
        if op != "mul":
            return values
        return four_values(values[PHRASE] - values[NEITHER], values[BOTH], values[NEITHER])

    def _operand(self, node: Node) -> Any:
        """The value of an input after its division into parts. A mask is not divided."""
        if node.op not in MASKS or self._source[node] is None:
            return self.value(node)
        return _all_context(self._values[node])


def _all_context(values: Tensor) -> Tensor:
    """The full value as all four values, so that the phrase has no part of it."""
    return values[BOTH].expand_as(values)


def _value_and_phrase(value: Tensor) -> tuple[Tensor, Tensor]:
    """A value, and the phrase's part of it, which is its tangent."""
    primal, tangent = unpack_dual(value)
    return primal, torch.zeros_like(primal) if tangent is None else tangent


def _depending_on_states(equations: Equations) -> set[Node]:
    """The new states other than the output, and the values that depend on them."""
    dependent = set(equations.states[1:])
    for node in equations.nodes:
        if any(arg in dependent for arg in node.inputs):
            dependent.add(node)
    return dependent
