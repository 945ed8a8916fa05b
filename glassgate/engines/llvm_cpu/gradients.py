"""The gradients of the operands of one direction: their memory and their order. `passes.py` computes them."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.llvm_cpu.backward import Backward
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.memory import Matrices, matrix_block
from glassgate.engines.plan import Plan


class GradientMemory(NamedTuple):
    """The memory of the gradients of one direction in one call.

    Attributes:
        weights: the gradients of parameters by name.
        initial: the gradients of the initial states.
        restart: the gradients of the states after a reset; `initial` without resets.
        parameter: the gradients of the parameters that the cell defines, per sequence.
    """

    weights: dict[str, Tensor]
    initial: list[Tensor]
    restart: list[Tensor]
    parameter: Tensor

    @property
    def written(self) -> list[Tensor]:
        """All tensors, in the order of `Backward.results`."""
        return [*self.weights.values(), *self.initial, *self.restart, self.parameter]


class OperandGradients:
    """The gradients of the operands of one direction: their memory and their order.

    Args:
        kernel: the backward pass of the direction.

    Attributes:
        operand_count: the number of tensors of the direction, see `Plan.operand_count`.
    """

    def __init__(self, kernel: Backward) -> None:
        plan, cell = kernel.plan, kernel.plan.cell
        self._kernel, self.operand_count = kernel, plan.operand_count
        self._weights = [
            (k, name, torch.empty_like if name in kernel.fully_written else torch.zeros_like)
            for k, name in enumerate(plan.weights)
            if name in kernel.d_weights
        ]
        self._initial = slice(len(plan.weights), len(plan.weights) + len(cell.state))
        self._widths = [buffer.width(kernel.sizes) for buffer in kernel.d_states]
        self._pitches = [width * kernel.sizes.bytes for width in self._widths]
        self._zeros, self._no_parameter = (kernel.zeros.data_ptr(), 0), kernel.zeros[0]
        columns = plan.trace.gradients["d_parameter"]
        self._parameter = (kernel.sizes.N, columns * kernel.sizes.H) if columns else None
        self._own = bool(cell.parameters)
        self._noise = [None] * len(plan.noise)
        self._recorded = tuple(kernel.recorded_widths.items())

    def memory(
        self,
        operands: Sequence[Tensor],
        d_final: Sequence[Tensor | None],
        layout: BatchLayout,
        resets: bool,
        copied: bool,
    ) -> GradientMemory:
        """Allocate the gradients of a call.

        Args:
            operands: the operands of the direction.
            d_final: the gradients of the final states; None for zero.
            layout: the rows of each step.
            resets: whether the call has resets.
            copied: whether `d_final` has copies of the gradients, which the pass may overwrite.
        """
        initial = operands[self._initial]
        # The pass updates the gradients of states in place, from the final states to the initial states.
        carried = [
            torch.zeros_like(v) if d is None else d if copied else d.clone(memory_format=torch.contiguous_format)
            for v, d in zip(initial, d_final, strict=True)
        ]
        restart = [torch.zeros_like(v) for v in initial] if resets else carried
        weights = {
            name: make(operands[k]) if layout.rows else torch.zeros_like(operands[k]) for k, name, make in self._weights
        }
        parameter = self._no_parameter if self._parameter is None else initial[0].new_zeros(self._parameter)
        return GradientMemory(weights, carried, restart, parameter)

    def recorded(self, S: int, layout: BatchLayout, like: Tensor) -> Matrices | None:
        """Allocate the gradients of a recording; None without one."""
        if not self._recorded:
            return None
        gradients = matrix_block(S, self._recorded, like.dtype).allocate()
        if layout.rows < S:
            gradients.zero_from(layout.rows)
        return gradients

    def rows(self, d_states: Sequence[Tensor | None], rows: int) -> list[int]:
        """The address and the pitch of each state's gradient at every step."""
        numbers: list[int] = []
        for width, distance, d in zip(self._widths, self._pitches, d_states, strict=True):
            if d is None:
                numbers += self._zeros
                continue
            assert d.shape[-1] == width, "the gradient of a state is as wide as the state"
            assert d.numel() >= width * rows, "the gradient of a state has all rows"
            numbers += d.data_ptr(), distance if d.is_contiguous() else d.stride(-2) * d.element_size()
        return numbers

    def by_tensor(self, memory: GradientMemory) -> list[Tensor | None]:
        """The gradient of each tensor; None for a tensor without one."""
        kernel, plan = self._kernel, self._kernel.plan
        d, states, restart, parameter = memory
        if self._own:
            d = d | custom_parameter_gradients(plan, kernel.sizes.H, d, parameter)
        if plan.restarts:
            states = states + (restart if restart is not states else [torch.zeros_like(v) for v in states])
        elif restart is not states:
            states = [a.add_(b) for a, b in zip(states, restart, strict=True)]
        return [*map(d.get, plan.weights), *states, *self._noise]


def custom_parameter_gradients(plan: Plan, H: int, names: Collection[str], d_parameter: Tensor) -> Weights:
    """The gradients of the parameters that the cell defines itself, by name.

    Args:
        plan: the plan of the direction.
        H: the hidden size.
        names: the parameters whose gradients are needed.
        d_parameter: (N, n * H), n columns of width H; `trace.parameter_columns` has the column of each parameter.
    """
    cell, trace, d = plan.cell, plan.trace, {}
    needed = cell.parameters.keys() & set(names)
    if not needed or not trace.parameters:
        return {}
    sums = d_parameter.sum(0)
    for name in needed:
        parts = [k for k, (parameter, _) in enumerate(trace.parameters) if parameter == name]
        if parts:
            rows = torch.cat([sums[k * H : (k + 1) * H] for k in (trace.parameter_columns[part] for part in parts)])
            of_parts = tuple(trace.parameters[k][1] or "" for k in parts)
            d[name] = _in_gate_order(rows, cell.gates if cell.parameters[name].per_gate else ("",), of_parts)
    return d


def _in_gate_order(rows: Tensor, gates: tuple[str, ...], of_blocks: tuple[str, ...]) -> Tensor:
    """Add each block of rows at the position of its gate. Gates without a block are zero."""
    if of_blocks == gates:
        return rows
    blocks = rows.unflatten(0, (len(of_blocks), -1))
    positions = torch.tensor([gates.index(gate) for gate in of_blocks], device=blocks.device)
    return blocks.new_zeros(len(gates), *blocks.shape[1:]).index_add_(0, positions, blocks).flatten(0, 1)
