"""Records the named values of a step, and their gradients.

Kernels store the values and the gradients of the local variables that the new states depend on; see
`ArrayProgram.stores_locals`. Otherwise torch computes the variables of all steps at once, with one row per step and
sequence, because the states, which kernels always store, are all that a step reads of earlier steps.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.arrays.rows import Operands, Rows
from glassgate.engines.contract import Direction, Recording
from glassgate.engines.reference import record_step, step_of


class Recorder(NamedTuple):
    """Records one direction in one call.

    Attributes:
        recording: receives the values and the gradients.
        direction: the direction.
    """

    recording: Recording
    direction: Direction

    def store_values(self, program: ArrayProgram, values: Mapping[str, Tensor]) -> None:
        """Record the values that kernels have stored, (S, width), gates first."""
        sizes, dims = program.sizes, {name: program.step.locals[name].dims for name in values}
        names = [*(name for name in self.direction.cell.gates if name in values), *values]
        self.recording.values = {name: values[name] for name in names}
        self.recording.shapes = {
            name: tuple([1 if axis is None else sizes[axis] for axis in dims[name]]) for name in self.recording.values
        }

    def pass_gradients(self, d: Sequence[Tensor | None], states: int) -> None:
        """Pass the gradients of the output and of the final states, from outside the loop, to the recording.

        Args:
            d: the gradients of every state after each step, then those of the final states.
            states: the number of states.
        """
        if self.recording.on_gradients is not None:
            self.recording.on_gradients([d[0], *d[states:]])

    def compute_values(self, rows: Rows, operands: Operands, states: Sequence[Tensor]) -> None:
        """Record the values of all steps.

        Args:
            rows, operands: those of the call.
            states: every state after each step, (*rows, width) each. Other tensors may follow.
        """
        with torch.no_grad():
            self._run(self.recording, rows, operands, states)

    def compute_gradients(
        self, rows: Rows, operands: Operands, states: Sequence[Tensor], d_states: Sequence[Tensor]
    ) -> None:
        """Add the gradients of a backward pass.

        Args:
            rows, operands, states: as in `compute_values`.
            d_states: the whole gradients of every state after each step.
        """
        again = Recording()
        with torch.enable_grad():
            new = self._run(again, rows, operands, states)
            pairs = [(v, g.flatten(0, -2)[: len(v)]) for v, g in zip(new, d_states, strict=True) if v.requires_grad]
            torch.autograd.backward([v for v, _ in pairs], [g for _, g in pairs])
        self.recording.add(again.grad)

    def _run(
        self, recording: Recording, rows: Rows, operands: Operands, states: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Run all steps at once. Return the new states."""
        gates, inputs = operands.gates.flatten(0, -2), operands.inputs
        direction, S, dtype = self.direction, len(gates), gates.dtype
        weights = {name: w.detach().to(dtype) for name, w in direction.weights.items()}
        step = step_of(direction._replace(weights=weights))
        before = self._states_before(rows, operands, states)
        count = len(before[0])

        def leaf(v: Tensor) -> Tensor:
            return v.detach().requires_grad_(torch.is_grad_enabled())

        ih, x = leaf(gates[:count]), leaf(inputs.flatten(0, -2)[:count] if inputs.numel() else inputs)
        noise: dict[str, Any] = {}
        for name, v in direction.noise.items():
            own = v[:count] if direction.cell.noise[name].per_step else v[rows.sequences.to(v.device)]
            noise[name] = own.to(dtype)
        previous = step.with_axes([leaf(v) for v in before])
        with record_step(recording, step, S, slice(0, count)) as store:
            new = step(step.gates(ih), previous, noise, step.input(x if x.numel() else None))
            store(new)
        return step.flat(new)

    @staticmethod
    def _states_before(rows: Rows, operands: Operands, states: Sequence[Tensor]) -> list[Tensor]:
        """The states before each step, (rows of sequences, width) each."""
        L, N, before = len(rows.starts), len(rows.lengths), list[Tensor]()
        sequences, previous, device = None, None, operands.gates.device
        if not rows.is_equal:
            sequences, previous = rows.sequences.to(device), rows.previous.to(device)
        for after, initial, restart in zip(states, operands.initial, operands.restart, strict=False):
            after = after.flatten(0, -2)
            initial, restart = initial.reshape(N, after.shape[1]), restart.reshape(N, after.shape[1])
            if sequences is None or previous is None:
                earlier = (after[N:], initial) if rows.reverse else (initial, after[:-N])
                v = torch.cat(earlier)
            else:
                v = torch.where((previous < 0)[:, None], initial[sequences], after[previous.clamp(min=0)])
            if rows.resets is not None:
                restart = restart.repeat(L, 1) if sequences is None else restart[sequences]
                v = torch.where(rows.resets[: len(v), None], restart, v)
            before.append(v)
        return before
