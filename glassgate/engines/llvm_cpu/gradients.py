"""The gradients of one direction's operands: their memory and their order. `passes.py` computes them."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.llvm_cpu.backward import BackwardPlan
from glassgate.engines.plan import Plan


class GradientTable(NamedTuple):
    """The gradients of one direction. Tensors are described by their indices in a call: 0 is the input.

    Attributes:
        plan: the plan of the direction.
        H: the hidden size.
        weights: for each parameter whose gradient is computed: its index, and the function that allocates the gradient
            of a tensor like the parameter.
        names: the names of these parameters.
        initial, restart: the indices of the initial states and of the states after a reset.
        states: the width and the pitch of the contiguous gradient of each state at every step.
        zeros: the address and the pitch of a gradient that is zero.
        parameter_width: the width of the gradients of the parameters that the cell defines, one row per sequence.
        no_parameter: the memory of these gradients if their width is 0.
        recorded_widths: the names and the widths of the recorded gradients.
    """

    plan: Plan
    H: int
    weights: Sequence[tuple[int, Callable[[Tensor], Tensor]]]
    names: Sequence[str]
    initial: range
    restart: range
    states: Sequence[tuple[int, int]]
    zeros: tuple[int, int]
    parameter_width: int
    no_parameter: Tensor
    recorded_widths: tuple[tuple[str, int], ...]

    @staticmethod
    def of(kernel_plan: BackwardPlan, start: int) -> "GradientTable":
        """Return the table of a direction.

        Args:
            kernel_plan: the plan of its backward pass.
            start: the index of its first operand.
        """
        plan, sizes, H = kernel_plan.plan, kernel_plan.sizes, kernel_plan.sizes.H
        names = [name for name in plan.weights if name in kernel_plan.d_weights]
        weights = [
            (start + k, torch.empty_like if name in kernel_plan.fully_written else torch.zeros_like)
            for k, name in enumerate(plan.weights)
            if name in kernel_plan.d_weights
        ]
        first, count = start + len(plan.weights), len(plan.cell.state)
        restart = range(first + count, first + 2 * count if plan.restarts else first + count)
        widths = [buffer.width(sizes) for buffer in kernel_plan.d_states]
        return GradientTable(
            plan,
            H,
            weights,
            names,
            range(first, first + count),
            restart,
            [(width, width * sizes.bytes) for width in widths],
            (kernel_plan.zeros.data_ptr(), 0),
            len(plan.trace.backward.d_parameters) * H,
            kernel_plan.zeros[0],
            tuple(kernel_plan.recorded_widths.items()),
        )


def custom_parameter_gradients(plan: Plan, H: int, names: Collection[str], d_parameter: Tensor) -> Weights:
    """Return the gradients of the parameters that the cell defines, by name.

    Args:
        plan: the plan of the direction.
        H: the hidden size.
        names: the parameters whose gradients are needed.
        d_parameter: (N, n * H), n columns of width H. `Trace.parameter_numbers` has the column of each parameter.
    """
    cell, trace, d = plan.cell, plan.trace, {}
    needed = cell.parameters.keys() & set(names)
    if not needed or not trace.parameters:
        return {}
    sums = d_parameter.sum(0)
    for name in needed:
        indices = [k for k, parameter in enumerate(trace.parameters) if parameter.name == name]
        if indices:
            columns = [trace.parameter_numbers[k] for k in indices]
            rows = torch.cat([sums[column * H : (column + 1) * H] for column in columns])
            gates_of_blocks = tuple(trace.parameters[k].gate or "" for k in indices)
            d[name] = _in_gate_order(rows, cell.gates if cell.parameters[name].per_gate else ("",), gates_of_blocks)
    return d


def _in_gate_order(rows: Tensor, gates: tuple[str, ...], gates_of_blocks: tuple[str, ...]) -> Tensor:
    """Add each block of rows at the position of its gate. Gates without a block are zero."""
    if gates_of_blocks == gates:
        return rows
    blocks = rows.unflatten(0, (len(gates_of_blocks), -1))
    positions = torch.tensor([gates.index(gate) for gate in gates_of_blocks], device=blocks.device)
    return blocks.new_zeros(len(gates), *blocks.shape[1:]).index_add_(0, positions, blocks).flatten(0, 1)
