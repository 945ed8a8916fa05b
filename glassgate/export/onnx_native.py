"""Emits cells as the ONNX operators RNN, GRU and LSTM. The operator LSTM also covers peepholes and coupled gates."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import onnx_ir as ir

from glassgate import cells
from glassgate.cell import Cell
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.traced_cells import current_equations
from glassgate.export.onnx_ops import Operators


class Operator(NamedTuple):
    """The ONNX operator that computes a cell.

    Attributes:
        cell: the cell.
        kind: the name of the operator.
        gates: the cell's gates in the order of the operator. "-f" denotes f with negated weights and biases.
        attributes: the attributes of the operator.
        peepholes: the cell's parameters for the ONNX input P, in the order of the operator.
    """

    cell: Cell
    kind: str
    gates: tuple[str, ...]
    attributes: Mapping[str, Any] = {}
    peepholes: tuple[str, ...] = ()


OPERATORS = (
    Operator(cells.RNN("tanh"), "RNN", ("h",), {"activations": ["Tanh"]}),
    Operator(cells.RNN("relu"), "RNN", ("h",), {"activations": ["Relu"]}),
    Operator(cells.GRU(), "GRU", ("z", "r", "n"), {"linear_before_reset": 1}),
    Operator(cells.GRUv3(), "GRU", ("z", "r", "n"), {"linear_before_reset": 0}),
    Operator(cells.LSTM(), "LSTM", ("i", "o", "f", "g")),
    Operator(cells.PeepholeLSTM(), "LSTM", ("i", "o", "f", "g"), {}, ("peep_i", "peep_o", "peep_f")),
    # i = 1 - sigmoid(f) = sigmoid(-f). Both gates have weights, because runtimes differ in which of the two they read.
    Operator(cells.CIFG(), "LSTM", ("-f", "o", "f", "g"), {"input_forget": 1}),
)


_allowed = ContextVar("operators", default=True)


@contextmanager
def operators_allowed(allowed: bool) -> Iterator[None]:
    """Allow or forbid the ONNX operators RNN, GRU and LSTM in this block.

    A context variable holds this option, because `torch.onnx.export` cannot pass it to the translation of our layers.
    """
    token = _allowed.set(allowed)
    try:
        yield
    finally:
        _allowed.reset(token)


def operator_for(equations: Equations) -> Operator | None:
    """The operator that computes these equations; None if there is none, or if operators are forbidden."""
    return _by_equations().get(equations.text) if _allowed.get() else None


@cache
def _by_equations() -> dict[str, Operator]:
    return {current_equations(operator.cell).text: operator for operator in OPERATORS}


def emit(
    op: Operators,
    operator: Operator,
    weights: Mapping[str, ir.Value],
    hidden_size: int,
    reverse: bool,
    x: ir.Value,
    lengths: ir.Value | None,
    initial: Sequence[ir.Value],
) -> tuple[ir.Value, list[ir.Value]]:
    """Emit one direction as one node.

    Args:
        op: collects the nodes.
        operator: the operator.
        weights: parameters by the names of `Cell.shapes`.
        hidden_size: H_cell.
        reverse: whether time runs from the last step to the first.
        x: (L, N, H_in).
        lengths: (N,) int32; None if every sequence has L steps.
        initial: the initial states, (N, H_cell) each.

    Returns:
        the output (L, N, H_cell) and the final states (N, H_cell).
    """
    gates = operator.cell.gates

    def by_gate(name: str) -> ir.Value:
        blocks = []
        for gate in operator.gates:
            k = gates.index(gate.removeprefix("-"))
            block = op.rows(weights[name], k * hidden_size, (k + 1) * hidden_size)
            blocks.append(op("Neg", block) if gate.startswith("-") else block)
        return op.concat(blocks, 0)

    bias = op.concat([by_gate("bias_ih"), by_gate("bias_hh")], 0) if "bias_ih" in weights else None
    peepholes = [weights[name] for name in operator.peepholes]
    states = [op.unsqueeze(state, 0) for state in initial]
    inputs: list[ir.Value | None] = [x, op.unsqueeze(by_gate("weight_ih"), 0), op.unsqueeze(by_gate("weight_hh"), 0)]
    inputs += [bias and op.unsqueeze(bias, 0), lengths, *states]
    inputs += [op.unsqueeze(op.concat(peepholes, 0), 0)] if peepholes else []
    direction = "reverse" if reverse else "forward"
    output, *final = op.several(
        operator.kind,
        1 + len(states),
        *inputs,
        hidden_size=hidden_size,
        direction=direction,
        **operator.attributes,
    )
    return op.squeeze(output, 1), [op.squeeze(state, 0) for state in final]
