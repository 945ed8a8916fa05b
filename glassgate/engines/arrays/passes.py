"""The recurrence of one direction as `backend.Passes`: what autograd and the transforms of torch.func call."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from math import prod
from typing import TypeVar

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
from glassgate.engines.torch_names import to_list

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
        rows: the rows of prepared calls, without resets; None if the pre-activations of a call determine them.
        reverse: whether time runs backwards.
        restarts: whether the states after a reset differ from the initial states.
        save: whether a backward pass follows.
        by_step: whether tensors with W numbers per step have the shape (L, N, W), as inside transforms.
        recorder: records the call; None to record nothing.
    """

    compiled: CompiledArrays
    rows: Rows | None
    reverse: bool = False
    restarts: bool = False
    save: bool = True
    by_step: bool = False
    recorder: Recorder | None = None
    planned = None
    """See `Passes`."""

    @cached_property
    def plans(self) -> tuple[Recurrence]:
        """The recurrence."""
        return (recurrence_of(self.compiled.program, self.restarts, self.by_step),)

    def by_direction(self, values: Sequence[T]) -> Iterator[tuple[Sequence[T], Sequence[T]]]:
        """See `Passes`."""
        count = len(self.compiled.program.outputs)
        yield values[:count], values[count:]

    def forward(
        self,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        ragged: Rows | Tensor | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """See `Passes`. Of prepared calls, `ragged` replaces the rows."""
        program, rows, operands = self.compiled.program, self._rows(tensors, resets, ragged), self._operands(tensors)
        results, saved, local = self.compiled.forward(rows, operands, self.save)
        if self.rows is None and not self.by_step:
            saved = saved.flatten()  # without axes, so that a compiled graph fixes no size
        if self.recorder is None:
            return results, [saved] if self.save else []
        if program.stores_locals:
            self.recorder.store_values(program, local)
            return results, [saved]
        self.recorder.compute_values(rows, operands, results)
        return results, [*results, saved]

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
        ragged: Rows | Tensor | None = None,
        recordings: Sequence[Recording] | None = None,
        groups: int = 0,
    ) -> list[Tensor | None]:
        """See `Passes`."""
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

    def empty_results(self, tensors: Sequence[Tensor], ragged: Tensor | None) -> list[Tensor]:
        """Empty results of the shapes of `forward`, with the saved states."""
        gates, program = tensors[0], self.compiled.program
        initial = tensors[1 + len(program.parameter_axes) :][: len(program.states)]
        results = [gates.new_empty(*gates.shape[:-1], v.shape[1]) for v in initial[: len(program.outputs)]]
        results += [torch.empty_like(v) for v in initial]
        if self.save:
            N = initial[0].shape[0]  # `len` would fix the size in a compiled graph
            steps = gates.shape[0] // torch.sym_max(N, 1) if ragged is None else ragged.shape[0]
            results.append(gates.new_empty(prod(self.compiled.saved_shape(steps, N))))
        return results

    def in_torch(
        self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Rows | Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """See `Passes`."""
        return self.compiled.in_torch(self._rows(tensors, resets, ragged), self._operands(tensors))

    def _rows(self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Rows | Tensor | None) -> Rows:
        rows = ragged if isinstance(ragged, Rows) else self.rows
        if rows is None:
            shape, N = tensors[0].shape[:-1], len(tensors[1 + len(self.compiled.program.parameter_axes)])
            batch_sizes = tuple(to_list(ragged)) if isinstance(ragged, Tensor) else None
            rows = layout_of(prod(shape), N, batch_sizes)._replace(shape=shape)
        if resets is None and rows.reverse is self.reverse:
            return rows
        return rows._replace(reverse=self.reverse, resets=None if resets is None else resets.flatten())

    def _operands(self, tensors: Sequence[Tensor]) -> Operands:
        if self.rows is None:  # a transform or a compiler has changed the tensors
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
