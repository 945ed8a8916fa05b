"""The memory and the order of the gradients of one direction's operands. `passes.py` computes the gradients."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.llvm_cpu.backward import BackwardPlan
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.memory import Matrices, matrix_block
from glassgate.engines.plan import Plan


class GradientMemory(NamedTuple):
    """The memory of the gradients of one direction in one call.

    Attributes:
        weights: the gradients of parameters by name.
        initial: the gradients of the initial states. Before the pass: those of the final states.
        restart: the gradients of the states after a reset. Without resets this is the same list as `initial`.
        parameter: the gradients of the parameters that the cell defines, one row per sequence.
        recorded: the recorded gradients; None if the plan records none.
        pointers: the address and the pitch of the gradient of each state at every step, then the addresses of recorded
            gradients.
    """

    weights: dict[str, Tensor]
    initial: list[Tensor]
    restart: list[Tensor]
    parameter: Tensor
    recorded: Matrices | None
    pointers: list[int]


class OperandGradients:
    """Allocates the gradients of one direction and returns them in the order of its operands.

    Args:
        kernel_plan: the plan of the backward pass of the direction.

    Attributes:
        operand_count: the number of operands of the direction, see `Plan.operand_count`.
        state_count: the number of its states.
    """

    def __init__(self, kernel_plan: BackwardPlan) -> None:
        plan, cell = kernel_plan.plan, kernel_plan.plan.cell
        self._kernel_plan, self.operand_count = kernel_plan, plan.operand_count
        self.state_count = len(cell.state)
        self._weights = [
            (k, name, torch.empty_like if name in kernel_plan.fully_written else torch.zeros_like)
            for k, name in enumerate(plan.weights)
            if name in kernel_plan.d_weights
        ]
        self._initial = slice(len(plan.weights), len(plan.weights) + len(cell.state))
        self._widths = [buffer.width(kernel_plan.sizes) for buffer in kernel_plan.d_states]
        self._pitches = [width * kernel_plan.sizes.bytes for width in self._widths]
        self._zeros, self._no_parameter = (kernel_plan.zeros.data_ptr(), 0), kernel_plan.zeros[0]
        columns = plan.trace.gradient_columns["d_parameter"]
        self._parameter_width = columns * kernel_plan.sizes.H
        self._has_custom_parameters = bool(cell.parameters)
        self._noise = [None] * len(plan.noise)
        self._recorded_widths = tuple(kernel_plan.recorded_widths.items())

    def allocate(
        self,
        operands: Sequence[Tensor],
        d_states: Sequence[Tensor | None],
        d_final: Sequence[Tensor | None],
        layout: BatchLayout,
        has_resets: bool,
        is_copy: bool,
        S: int,
    ) -> GradientMemory:
        """Allocate the gradients of a call.

        Args:
            operands: the operands of the direction.
            d_states: the gradients of the states at every step; None for zero.
            d_final: the gradients of the final states; None for zero.
            layout: the rows of each step.
            has_resets: whether the call has resets.
            is_copy: whether the tensors of `d_final` are copies, which the pass may overwrite.
            S: the number of rows of recorded gradients. The rows after those of the layout are zero.
        """
        initial, pointers = operands[self._initial], list[int]()
        # The pass updates the gradients of states in place, from the final states to the initial states.
        carried, weights = list[Tensor](), dict[str, Tensor]()
        for v, d in zip(initial, d_final, strict=True):
            copy = d if d is None or is_copy else d.clone(memory_format=torch.contiguous_format)
            carried.append(torch.zeros_like(v) if copy is None else copy)
        restart = [*map(torch.zeros_like, initial)] if has_resets else carried
        for k, name, make in self._weights:
            weights[name] = make(operands[k]) if layout.rows else torch.zeros_like(operands[k])
        width, parameter = self._parameter_width, self._no_parameter
        if width:
            parameter = initial[0].new_zeros(layout.N, width)
        for width, contiguous_pitch, d in zip(self._widths, self._pitches, d_states, strict=True):
            if d is None:
                pointers += self._zeros
                continue
            assert d.shape[-1] == width, "the gradient of a state is as wide as the state"
            assert d.numel() >= width * layout.rows, "the gradient of a state has all rows"
            pointers += d.data_ptr(), contiguous_pitch if d.is_contiguous() else d.stride(-2) * d.element_size()
        recorded = None
        if self._recorded_widths:
            recorded = matrix_block(S, self._recorded_widths, operands[0].dtype).allocate()
            if layout.rows < S:
                recorded.zero_from(layout.rows)
            pointers += recorded.addresses()
        return GradientMemory(weights, carried, restart, parameter, recorded, pointers)

    def by_operand(self, memory: GradientMemory) -> list[Tensor | None]:
        """Return the gradient of each operand after the pass; None for an operand without gradient."""
        plan, H = self._kernel_plan.plan, self._kernel_plan.sizes.H
        d, states, restart, parameter, _, _ = memory
        if self._has_custom_parameters:
            d = d | custom_parameter_gradients(plan, H, d, parameter)
        if plan.restarts:
            states = states + (restart if restart is not states else [torch.zeros_like(v) for v in states])
        elif restart is not states:
            states = [*map(Tensor.add_, states, restart)]
        return [*map(d.get, plan.weights), *states, *self._noise]


def custom_parameter_gradients(plan: Plan, H: int, names: Collection[str], d_parameter: Tensor) -> Weights:
    """Return the gradients of the parameters that the cell defines, by name.

    Args:
        plan: the plan of the direction.
        H: the hidden size.
        names: the parameters whose gradients are needed.
        d_parameter: (N, n * H), n columns of width H. `Trace.parameter_columns` has the column of each parameter.
    """
    cell, trace, d = plan.cell, plan.trace, {}
    needed = cell.parameters.keys() & set(names)
    if not needed or not trace.parameters:
        return {}
    sums = d_parameter.sum(0)
    for name in needed:
        indices = [k for k, (parameter, _) in enumerate(trace.parameters) if parameter == name]
        if indices:
            columns = [trace.parameter_columns[k] for k in indices]
            rows = torch.cat([sums[column * H : (column + 1) * H] for column in columns])
            gates_of_blocks = tuple(trace.parameters[k][1] or "" for k in indices)
            d[name] = _in_gate_order(rows, cell.gates if cell.parameters[name].per_gate else ("",), gates_of_blocks)
    return d


def _in_gate_order(rows: Tensor, gates: tuple[str, ...], gates_of_blocks: tuple[str, ...]) -> Tensor:
    """Add each block of rows at the position of its gate. Gates without a block are zero."""
    if gates_of_blocks == gates:
        return rows
    blocks = rows.unflatten(0, (len(gates_of_blocks), -1))
    positions = torch.tensor([gates.index(gate) for gate in gates_of_blocks], device=blocks.device)
    return blocks.new_zeros(len(gates), *blocks.shape[1:]).index_add_(0, positions, blocks).flatten(0, 1)
