"""The derivative of a step with respect to the states before it, from the graph of the cell, for many rows at once."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import pad

from glassgate.cell import Weights
from glassgate.engines.axes import PER_ROW, PROJECTED, UNITS
from glassgate.engines.reference_step import linear
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.evaluate import evaluate
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.operations import OPERATIONS

DIRECT = "direct"
"""The label of derivatives along paths without a gate, and of all derivatives if gates are not distinguished."""


@dataclass
class StateDerivative:
    """The derivative of a value (B, n) with respect to S numbers, such as the flat state (B, S).

    Most values depend on a state unit by unit. That part of the derivative is diagonal, and the rest is dense. A
    derivative that is the same for all rows, such as a weight matrix, has B = 1.

    Attributes:
        diagonals: the diagonal (B, n) for each state on which the value depends unit by unit. The key is the first
            column of that state in the flat state.
        dense: (B, n, S), or None for zero.
    """

    diagonals: dict[int, Tensor] = field(default_factory=dict)
    dense: Tensor | None = None

    def scale(self, factor: Tensor) -> "StateDerivative":
        """The derivative of `factor` (B, n) times the value."""
        dense = None if self.dense is None else factor.unsqueeze(-1) * self.dense
        return StateDerivative({at: factor * d for at, d in self.diagonals.items()}, dense)

    def add(self, other: "StateDerivative") -> "StateDerivative":
        """The sum of two derivatives."""
        diagonals = dict(self.diagonals)
        for at, d in other.diagonals.items():
            diagonals[at] = diagonals[at] + d if at in diagonals else d
        if self.dense is None or other.dense is None:
            return StateDerivative(diagonals, other.dense if self.dense is None else self.dense)
        return StateDerivative(diagonals, self.dense + other.dense)

    def matmul(self, weight: Tensor, size: int) -> "StateDerivative":
        """The derivative of `weight` (m, n) times the value."""
        parts = [pad(weight * d.unsqueeze(1), (at, size - at - d.shape[1])) for at, d in self.diagonals.items()]
        if self.dense is not None:
            parts.append(weight @ self.dense)
        return StateDerivative({}, reduce(operator.add, parts)) if parts else StateDerivative()

    def sum(self, size: int) -> "StateDerivative":
        """The derivative of the sum of the value over n, (B, 1, S)."""
        tensor = next(iter(self.diagonals.values()), self.dense)
        if tensor is None:
            return StateDerivative()
        return self.matmul(tensor.new_ones(1, tensor.shape[1]), size)

    def to_dense(self, rows: int, width: int, size: int, like: Tensor) -> Tensor:
        """The derivative as one dense tensor (B, n, S). Callers must not modify it."""
        if not self.diagonals and self.dense is not None:
            return self.dense.expand(rows, -1, -1)
        dense = like.new_zeros(rows, width, size) if self.dense is None else self.dense.expand(rows, -1, -1).clone()
        for at, d in self.diagonals.items():
            dense[:, :, at : at + width].diagonal(dim1=1, dim2=2).add_(d)
        return dense


class Linearization:
    """The step of a layer, for forward-mode differentiation.

    Args:
        equations: the graph of the step.
        weights: the layer's parameters by name.
    """

    def __init__(self, equations: Equations, weights: Weights) -> None:
        self.equations, self.weights = equations, weights
        self._gate = {node: gate for gate, node in equations.gate_values.items()}
        self._recurrent = {}
        if "weight_hh" in weights:
            blocks = weights["weight_hh"].chunk(len(equations.gates))
            self._recurrent = dict(zip(equations.gates, (self._as_one_matrix(block) for block in blocks), strict=True))

    def _as_one_matrix(self, weight: Tensor) -> Tensor:
        """The recurrent weights of a gate as one matrix, for any number of heads."""
        return torch.block_diag(*weight.chunk(self.equations.heads))

    def _block(self, name: str, gate: str) -> Tensor:
        return self.weights[name].chunk(len(self.equations.gates))[self.equations.gates.index(gate)]

    def run(
        self,
        input: Tensor,
        d_input: Tensor | None,
        states: Sequence[Tensor],
        d_states: Sequence[StateDerivative],
        size: int,
        by_gate: bool = False,
    ) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
        """Compute the new states and their derivatives with respect to S numbers, such as the flat state.

        Args:
            input: (B, H_in).
            d_input: the derivative of the input, (B, H_in, S); None for zero.
            states: the states before the step, (B, width) each.
            d_states: the derivative of each state.
            size: S.
            by_gate: whether to split derivatives by the last gate on each path.

        Returns:
            The new states, (B, width) each, and their derivatives, (B, width, S) each, by label. The labels are the
            names of the gates and "direct" if `by_gate`, otherwise only "total".
        """
        values = self._values(input, states)
        before = dict(zip(self.equations.state, d_states, strict=True))
        d: dict[Node, dict[str, StateDerivative]] = {}
        for node in self.equations.nodes:
            d[node] = by_label = self._derivative(node, values, d, d_input, before, size)
            if by_gate and node in self._gate and by_label:
                total = StateDerivative()
                for part in by_label.values():
                    total = total.add(part)
                d[node] = {self._gate[node]: total}
        labels = (DIRECT, *self._gate.values()) if by_gate else ("total",)
        rows = input.shape[0]
        return [values[node] for node in self.equations.states], {
            label: [
                d[node]
                .get(DIRECT if label == "total" else label, StateDerivative())
                .to_dense(rows, values[node].shape[1], size, input)
                for node in self.equations.states
            ]
            for label in labels
        }

    def _values(self, input: Tensor, states: Sequence[Tensor]) -> Mapping[Node, Tensor]:
        """The value of each node, (B, n) or (B, 1)."""
        ih = linear(input, self.weights["weight_ih"], self.weights.get("bias_ih"))
        ih_by_gate = dict(zip(self.equations.gates, ih.chunk(len(self.equations.gates), 1), strict=True))
        before = dict(zip(self.equations.state, states, strict=True))
        units = next(iter(ih_by_gate.values())).shape[1]
        widths = {PROJECTED.name: states[0].shape[1], UNITS.name: units, PER_ROW.name: 1}

        def leaf(node: Node, args: tuple[Tensor, ...]) -> Tensor:
            match node.op:
                case ops.InputHalf(gate):
                    return ih_by_gate[gate]
                case ops.State(name):
                    return before[name]
                case ops.RecurrentHalf(gate):
                    bias = self._block("bias_hh", gate) if "bias_hh" in self.weights else None
                    return linear(args[0], self._recurrent[gate], bias)
                case ops.Projection():
                    return linear(args[0], self.weights["weight_hr"])
                case ops.RowSum():
                    return args[0].sum(1, keepdim=True)
                case ops.Parameter(name, of_gate):
                    value = self.weights[name] if of_gate is None else self._block(name, of_gate)
                    return value.expand(input.shape[0], -1)
                case ops.Size(axis):
                    return input.new_full((input.shape[0], 1), widths[axis])
                case ops.Constant(number):
                    return input.new_full((input.shape[0], widths[node.axis.name]), number)
            raise AssertionError(f"a step in eval mode has no {node.op}")

        return evaluate(self.equations.nodes, leaf, input.dtype)

    def _derivative(
        self,
        node: Node,
        values: Mapping[Node, Tensor],
        d: Mapping[Node, dict[str, StateDerivative]],
        d_input: Tensor | None,
        before: Mapping[str, StateDerivative],
        size: int,
    ) -> dict[str, StateDerivative]:
        """The derivative of a node, by label; empty if it is zero."""
        match node.op:
            case ops.State(name):
                return {DIRECT: before[name]}
            case ops.InputHalf(gate) if d_input is not None:
                return {DIRECT: StateDerivative({}, self._block("weight_ih", gate) @ d_input)}
            case ops.RecurrentHalf(gate):
                weight = self._recurrent[gate]
                return {label: part.matmul(weight, size) for label, part in d[node.inputs[0]].items()}
            case ops.Projection():
                weight = self.weights["weight_hr"]
                return {label: part.matmul(weight, size) for label, part in d[node.inputs[0]].items()}
            case ops.RowSum():
                return {label: part.sum(size) for label, part in d[node.inputs[0]].items()}
        derivative = OPERATIONS[node.op].derivative if isinstance(node.op, str) else None
        if derivative is None:
            return {}
        by_label: dict[str, StateDerivative] = {}
        y = values[node]
        args = [values[arg] if isinstance(arg, Node) else arg for arg in node.args]
        ones = torch.ones_like(y)
        partials = derivative(ones, y, *args)
        for arg, partial in zip(node.args, partials, strict=True):
            if isinstance(arg, Node) and isinstance(partial, Tensor):
                for label, part in d[arg].items():
                    scaled = part if partial is ones else part.scale(partial.expand_as(y))
                    by_label[label] = by_label[label].add(scaled) if label in by_label else scaled
        return by_label
