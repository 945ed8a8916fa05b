"""The calls of the kernels of a cell whose states are arrays; `passes.py` differentiates them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.arrays.rows import Operands, Rows
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.evaluate import new_states


class CompiledArrays(ABC):
    """The kernels of a step for one type of number.

    Args:
        program: the passes of the step.

    Attributes:
        chunk: the number of steps between saved states.
        state_size: the number of elements of the saved states of a job.
    """

    chunk: int

    def __init__(self, program: ArrayProgram) -> None:
        self.program = program
        self.state_size = sum(program.size(program.states[name]) for name in program.kept_states)

    @abstractmethod
    def run_forward(self, rows: Rows, operands: Operands, saved: Tensor, arguments: Sequence[Tensor]) -> None:
        """Run the forward kernel.

        Args:
            rows, operands: those of the call.
            saved: the memory of the saved states; empty if they are not saved.
            arguments: the tensors of `ArrayProgram.forward_arguments`.
        """

    @abstractmethod
    def run_backward(self, rows: Rows, operands: Operands, saved: Tensor, arguments: Sequence[Tensor]) -> None:
        """Run the backward kernel. The last argument are the tensors of `ArrayProgram.backward_arguments`."""

    def forward(
        self, rows: Rows, operands: Operands, save: bool
    ) -> tuple[tuple[Tensor, ...], Tensor, Mapping[str, Tensor]]:
        """Run the forward pass. Return its results, the saved states, and the local variables that it stores."""
        gates, final, program = operands.gates, [v.clone() for v in operands.initial], self.program
        make = gates.new_empty if rows.is_dense else gates.new_zeros
        results = [make(*rows.shape, program.width(program.step.state[name])) for name in program.outputs]
        saved = gates.new_empty(self.saved_shape(len(rows.starts), len(rows.lengths)) if save else 0)
        local = self._new_locals(rows, make)
        arguments = [*results, *local.values(), *final, *operands.restart, *operands.parameters]
        self.run_forward(rows, operands, saved, arguments)
        return (*results, *final), saved, local

    def _new_locals(self, rows: Rows, make: Callable[..., Tensor]) -> dict[str, Tensor]:
        """New memory for each local variable that the passes store, or for its gradients, (S, width)."""
        return {name: make(prod(rows.shape), self.program.width(axes)) for name, axes in self.program.locals.items()}

    def saved_shape(self, steps: int, N: int) -> tuple[int, int, int]:
        """The shape of the saved states of N sequences: (chunks, N, width)."""
        return -(-steps // self.chunk), N, self.program.heads * self.state_size

    def backward(
        self, rows: Rows, operands: Operands, saved: Tensor, d_results: Sequence[Tensor | None], groups: int = 0
    ) -> tuple[Operands, dict[str, Tensor]]:
        """Run the backward pass. Return the gradients of the operands, and of all values whose gradients are stored.

        The gradient of noise is empty. A gradient in `d_results` of None is zero.

        Args:
            rows, operands: those of the call.
            saved: the saved states.
            d_results: the gradients of the results.
            groups: see `GradientRequest.groups`. All sequences then have the same length.
        """
        gates, program, count = operands.gates, self.program, len(self.program.outputs)
        S = prod(rows.shape)
        empty = torch.empty_like if rows.is_dense else torch.zeros_like
        d_gates, d_inputs = empty(gates), empty(operands.inputs)
        shared = [program.size(axes) for axes in program.shared.values()]
        d_shared = gates.new_zeros(S, program.heads, sum(shared))
        d_outputs = [
            gates.new_zeros(*rows.shape, program.width(program.step.state[name])) if d is None else d
            for name, d in zip(program.outputs, d_results, strict=False)
        ]
        d_initial = [
            torch.zeros_like(v) if d is None else d.clone(memory_format=torch.contiguous_format)
            for v, d in zip(operands.initial, d_results[count:], strict=True)
        ]
        # Without resets, no kernel writes the gradients of the states after them.
        d_restart = d_initial if rows.resets is None else [torch.zeros_like(v) for v in d_initial]
        make = gates.new_empty if rows.is_dense else gates.new_zeros
        factors = [make(S, program.heads, program.size(axes)) for axes in program.factors.values()]
        d_by_job = [
            gates.new_zeros(self.jobs(rows), program.size(axes))
            for key, axes in program.parameter_axes.items()
            if key not in program.products
        ]
        arguments = [d_gates, d_inputs, d_shared, *d_outputs, *d_initial, *operands.restart, *d_restart]
        d_states = {}
        if program.records:
            d_states = {name: make(*rows.shape, program.width(axes)) for name, axes in program.step.state.items()}
        d_locals = self._new_locals(rows, make)
        arguments += [*operands.parameters, *d_by_job, *d_states.values(), *d_locals.values(), *factors]
        self.run_backward(rows, operands, saved, arguments)
        self._add_heads(d_shared, d_gates, d_inputs)
        if groups:
            factors = [v.view(len(rows.starts), groups, -1, *v.shape[1:]) for v in factors]
        d_parameters = self._of_parameters(operands.parameters, d_by_job, factors, groups)
        if rows.resets is None:
            d_restart = [torch.zeros_like(v) for v in d_initial]
        return Operands(d_gates, d_inputs, operands.noise[:0], d_initial, d_restart, d_parameters), {
            **d_locals,
            **d_states,
        }

    def _add_heads(self, d_shared: Tensor, d_gates: Tensor, d_inputs: Tensor) -> None:
        """Write the gradients of gates and inputs that the heads share: the sums over the heads."""
        if not d_shared.numel():
            return
        program = self.program
        by_name = dict[str, Tensor]()
        for prefix, blocks, d in (("g_", program.gates, d_gates), ("y_", program.inputs, d_inputs)):
            widths = [self.program.width(axes) for axes in blocks.values()]
            if widths:
                names = [f"{prefix}{name}" for name in blocks]
                by_name |= dict(zip(names, d.flatten(0, -2).split(widths, 1), strict=True))
        shared = [program.size(axes) for axes in program.shared.values()]
        for name, total in zip(program.shared, d_shared.sum(1).split(shared, 1), strict=True):
            by_name[name].copy_(total)

    def _of_parameters(
        self, parameters: Sequence[Tensor], d_by_job: Sequence[Tensor], factors: Sequence[Tensor], groups: int
    ) -> list[Tensor]:
        """The gradients of the parameters, from the sums of each job, or from the factors at each step."""
        program, d_parameters, summed = self.program, list[Tensor](), iter(d_by_job)
        for (key, axes), parameter in zip(program.parameter_axes.items(), parameters, strict=True):
            if key in program.products:
                total: Any = sum(self._product(factors, pair, axes, groups) for pair in program.products[key])
            else:
                of_heads = next(summed).view(max(groups, 1), -1, program.heads, program.size(axes)).sum(1)
                total = of_heads if program.head in axes else of_heads.sum(1)
            d_parameters.append(total.reshape((*([groups] if groups else []), *parameter.shape)))
        return d_parameters

    def _product(self, factors: Sequence[Tensor], pair: tuple[int, int], axes: Sequence[str], groups: int) -> Tensor:
        """The sum over all steps of the products of two factors, over the axes of a parameter."""
        program = self.program
        names, has_head = [*program.factors], program.head in axes
        a, b = (factors[k] for k in pair)
        order = [axis for k in pair for axis in program.factors[names[k]]]
        order = [program.head, *order] if has_head else order
        shape, to = [program.sizes[axis] for axis in order], [order.index(axis) for axis in axes]
        if groups:
            total = torch.einsum("tgnhx,tgnhy->ghxy" if has_head else "tgnhx,tgnhy->gxy", a, b)
            shape, to = [groups, *shape], [0, *(k + 1 for k in to)]
        elif has_head:
            total = torch.bmm(a.permute(1, 2, 0), b.transpose(0, 1))
        else:
            total = a.flatten(0, 1).t() @ b.flatten(0, 1)
        return total.reshape(shape).permute(to)

    def jobs(self, rows: Rows) -> int:
        """The number of jobs of a call."""
        return len(rows.lengths) * self.program.heads

    def in_torch(self, rows: Rows, operands: Operands) -> tuple[Tensor, ...]:
        """The results of a call, computed step by step in torch, so that they can be differentiated to any order."""
        program, step, sizes = self.program, self.program.step, self.program.sizes

        def shape(axes: Sequence[str]) -> list[int]:
            return [-1, *(sizes[axis] for axis in axes)]

        gates = operands.gates.flatten(0, -2)
        blocks: list[tuple[type[ops.Leaf], Mapping[str, Sequence[str]], Tensor]] = [
            (ops.InputHalf, program.gates, gates),
            (ops.Input, program.inputs, operands.inputs.flatten(0, -2) if program.inputs else operands.inputs),
            (ops.Noise, program.noise, operands.noise),
        ]
        pairs = zip(program.parameter_axes.items(), operands.parameters, strict=True)
        parameters: dict[ops.Leaf, Tensor] = {key: v.reshape(1, *shape(axes)[1:]) for (key, axes), v in pairs}
        lengths, count, N = rows.lengths, len(program.outputs), len(rows.lengths)
        states, restart = ([v.reshape(N, -1) for v in group] for group in (operands.initial, operands.restart))
        outputs: list[tuple[Tensor, list[Tensor]]] = []
        resets = None if rows.resets is None else rows.resets.flatten()
        for k in range(len(rows.starts)):
            (alive,) = torch.nonzero(lengths > k, as_tuple=True)
            t = lengths[alive] - 1 - k if rows.reverse else torch.full_like(alive, k)
            index, alive = (rows.starts[t] + alive).to(gates.device), alive.to(gates.device)
            before = [v[alive] for v in states]
            if resets is not None:
                mask = resets[index, None]
                before = [torch.where(mask, r[alive], v) for r, v in zip(restart, before, strict=True)]
            leaves = dict(parameters)
            for op, axes_by_name, values in blocks:
                widths = [self.program.width(axes) for axes in axes_by_name.values()]
                split = values[index].split(widths, 1) if widths else ()
                for (name, axes), v in zip(axes_by_name.items(), split, strict=True):
                    leaves[op(name)] = v.reshape(shape(axes))
            leaves |= {
                ops.State(s): v.reshape(shape(axes)) for (s, axes), v in zip(step.state.items(), before, strict=True)
            }
            new = [v.reshape(len(alive), -1) for v in new_states(step, leaves, len(alive))]
            states = [v.index_copy(0, alive, n) for v, n in zip(states, new, strict=True)]
            outputs.append((index, new[:count]))
        results = [gates.new_zeros(len(gates), v.shape[1]) for v in states[:count]]
        for index, values_of_step in outputs:
            results = [v.index_copy(0, index, n) for v, n in zip(results, values_of_step, strict=True)]
        final = [v.view_as(initial) for v, initial in zip(states, operands.initial, strict=True)]
        return (*(v.view(*rows.shape, -1) for v in results), *final)
