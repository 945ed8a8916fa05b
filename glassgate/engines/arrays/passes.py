"""The recurrence of one direction as `backend.Passes`: what autograd and the transforms of torch.func call."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress, islice
from typing import Any, TypeVar

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.arrays.compiled import CompiledArrays
from glassgate.engines.arrays.program import ArrayProgram, parameter_name
from glassgate.engines.arrays.recorder import Recorder
from glassgate.engines.arrays.rows import Operands, Rows, layout_of
from glassgate.engines.contract import Recording
from glassgate.engines.memory import in_memory
from glassgate.engines.plan import Recurrence

T = TypeVar("T")


@lru_cache(256)
def recurrence_of(program: ArrayProgram, restarts: bool, by_step: bool) -> Recurrence:
    """The tensors of the calls of a recurrence.

    Args:
        program: the passes of a step.
        restarts: whether the states after a reset differ from the initial states.
        by_step: whether tensors with W numbers per step have the shape (L, N, W).
    """
    parameters = tuple(map(parameter_name, program.parameter_axes))
    has_gradient = [True] * (len(parameters) + (1 + restarts) * len(program.states) + bool(program.inputs))
    differentiable = (*has_gradient, *[False] * bool(program.noise))
    return Recurrence(parameters, differentiable, (len(program.outputs), len(program.states)), by_step)


@dataclass(frozen=True, eq=False)
class ArrayPasses:
    """The passes of the recurrence of one direction, whose cell declares axes; see `backend.Passes`.

    The tensors of a call are the pre-activations, the parameters of the kernels, the initial states, the states after a
    reset if they differ, the inputs and the noise if the cell reads them.

    Attributes:
        compiled: the kernels.
        rows: the rows of a call, without resets; None if the pre-activations, (L, N, W), determine them.
        reverse: whether time runs backwards.
        restarts: whether the states after a reset differ from the initial states.
        recorder: records the call; None to record nothing.
    """

    compiled: CompiledArrays
    rows: Rows | None
    reverse: bool = False
    restarts: bool = False
    recorder: Recorder | None = None

    @cached_property
    def plans(self) -> tuple[Recurrence]:
        """The recurrence."""
        return (recurrence_of(self.compiled.program, self.restarts, self.rows is None),)

    def by_direction(self, values: Sequence[T]) -> Iterator[tuple[Sequence[T], Sequence[T]]]:
        """See `Passes`."""
        count = len(self.compiled.program.outputs)
        yield values[:count], values[count:]

    def run(self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Rows | None) -> Sequence[Tensor]:
        """Run a call without a backward pass. The arguments are those of `forward`."""
        return self._forward(tensors, resets, ragged, False)[0]

    def forward(
        self,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        ragged: Any = None,
        recordings: Sequence[Recording] | None = None,
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """See `Passes`. `ragged` replaces the rows."""
        results, saved = self._forward(tensors, resets, ragged, True)
        return results, [*(() if self.recorder is None or self.compiled.program.stores_locals else results), saved]

    def _forward(
        self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Rows | None, save: bool
    ) -> tuple[Sequence[Tensor], Tensor]:
        rows, operands = self._rows(tensors, resets, ragged), self._operands(tensors)
        results, saved, local = self.compiled.forward(rows, operands, save)
        if self.recorder is not None and self.compiled.program.stores_locals:
            self.recorder.store_values(self.compiled.program, local)
        elif self.recorder is not None:
            self.recorder.compute_values(rows, operands, results)
        return results, saved

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
        ragged: Any = None,
        recordings: Sequence[Recording] | None = None,
        groups: int = 0,
    ) -> list[Tensor | None]:
        """See `Passes` and `GradientRequest.groups`."""
        program = self.compiled.program
        d_visible = d_visible[: len(program.outputs) + len(program.states)]  # in transforms, saved tensors are results
        present = iter(in_memory([d for d in d_visible if d is not None]))
        d_results = [None if d is None else next(present).contiguous() for d in d_visible]
        rows, operands = self._rows(tensors, resets, ragged), self._operands(tensors)
        d, d_values = self.compiled.backward(rows, operands, saved[-1], d_results, groups)
        if self.recorder is not None:
            self.recorder.pass_gradients(d_results, len(program.states))
            if program.stores_locals:
                self.recorder.recording.add({name: v.flatten(0, -2) for name, v in d_values.items()})
            else:
                self.recorder.compute_gradients(rows, operands, saved[:-1], [*d_values.values()])
        initial = d.initial
        if not self.restarts and resets is not None:
            initial = [v + w for v, w in zip(d.initial, d.restart, strict=True)]
        of_tensors: list[Tensor | None] = [d.gates, *d.parameters, *initial, *(d.restart if self.restarts else ())]
        of_tensors += [d.inputs] if program.inputs else []
        return [*of_tensors, *([None] if program.noise else [])]

    def in_torch(self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Any = None) -> tuple[Tensor, ...]:
        """The results of a call, computed in torch, so that they can be differentiated to any order."""
        return self.compiled.in_torch(self._rows(tensors, resets, ragged), self._operands(tensors))

    def with_tangents(
        self, tensors: Sequence[Tensor], d: Sequence[Tensor | None], resets: Tensor | None, ragged: Any
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The results of a call and their tangents, both computed in torch and differentiable.

        Args:
            tensors, resets, ragged: as in `forward`.
            d: the tangents of `tensors`; None for zero.
        """
        is_moved = [v is not None for v in d]
        moved = tuple(compress(tensors, is_moved))

        def results(*moved: Tensor) -> tuple[Tensor, ...]:
            remaining = iter(moved)
            own = [next(remaining) if has_tangent else v for v, has_tangent in zip(tensors, is_moved, strict=True)]
            return self.in_torch(own, resets, ragged)

        if not moved:
            values = self.in_torch(tensors, resets, ragged)
            return values, [torch.zeros_like(v) for v in values]
        values, pullback, *_ = torch.func.vjp(results, *moved)
        # The gradients of a call are linear in the gradients of its results, so their derivative has the tangents.
        zeros = [torch.zeros_like(v) for v in values]
        _, transposed, *_ = torch.func.vjp(lambda *d_values: pullback(d_values), *zeros)
        return values, transposed(tuple(compress(d, is_moved)))

    def _rows(self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Rows | None) -> Rows:
        rows = ragged or self.rows
        if rows is None:
            L, N, _ = tensors[0].shape
            rows = layout_of(L * N, N, None)._replace(shape=(L, N))
        if resets is None and rows.reverse is self.reverse:
            return rows
        return rows._replace(reverse=self.reverse, resets=None if resets is None else resets.flatten())

    def _operands(self, tensors: Sequence[Tensor]) -> Operands:
        if self.rows is None:  # a transform has changed the tensors
            tensors = [v.contiguous() for v in tensors]
        program, remaining = self.compiled.program, iter(tensors)
        gates, parameters = next(remaining), [*islice(remaining, len(program.parameter_axes))]
        initial = [*islice(remaining, len(program.states))]
        restart = [*islice(remaining, len(program.states))] if self.restarts else initial
        nothing = gates.new_empty(0)
        inputs = next(remaining) if program.inputs else nothing
        noise = next(remaining) if program.noise else nothing
        return Operands(gates, inputs, noise, initial, restart, parameters)


def noise_rows(
    widths: Sequence[tuple[str, int]], cell: Cell, noise: Mapping[str, Tensor], like: Tensor, sequences: int | Rows
) -> Tensor:
    """The random numbers of all rows, (S, width): the drawn ones, or the mean of each.

    Args:
        widths: the name and the width of each random number that the kernels read; at least one.
        cell: the cell.
        noise: the drawn numbers by name.
        like: a tensor with S rows and the dtype of the numbers.
        sequences: the number of sequences of equal length, or the rows.
    """
    S, blocks = like.shape[0], []
    for name, width in widths:
        if name not in noise:
            blocks.append(like.new_full((S, width), cell.noise[name].mean))
        elif cell.noise[name].per_step:
            blocks.append(noise[name])
        elif isinstance(sequences, Rows):
            index = sequences.sequences.to(like.device)
            blocks.append(noise[name][torch.cat([index, index.new_zeros(S - len(index))])])
        else:
            blocks.append(noise[name].repeat(S // sequences, 1))
    return torch.cat(blocks, 1)
