"""Sequences of different lengths: their layout, and copies between padded tensors and the rows of kernels.

The rows of kernels have no padding. Their sequences are sorted by decreasing length. The *rank* of a sequence is its
index in this order.
"""

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.backend import PackedLengths
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.llvm_cpu.native import compile_native
from glassgate.engines.llvm_cpu.tasks import Launch, TaskPart

SORT = '''
def sort(N, L, sizes_at, starts_at):
    """Sort sequences by decreasing length. Write the order, and the number of rows and the first row of each step.

    The arguments are those of `gather`. The lengths are stored after the order.
    """
    sizes, starts = words(sizes_at - 8), words(starts_at - 8)
    order, lengths, rows = words(starts_at + 8 * (L + 1)), words(starts_at + 8 * (L + 1 + N)), 0
    for t in range(L + 2):
        sizes[t] = 0
    for n in range(N):
        sizes[lengths[n]] += 1
    for t in range(L, -1, -1):
        count, sizes[t + 1], starts[t] = sizes[t], rows, rows
        rows += count
    for n in range(N):
        order[starts[lengths[n]]] = n
        starts[lengths[n]] += 1
    sizes[0], rows = 0, 0
    for t in range(L + 2):
        starts[t] = rows
        rows += sizes[t]
'''

GATHER = '''
def gather(N, L, sizes: words, starts_at, tensor_count, by_step, *values):
    """Copy padded tensors to rows in the order of ranks, without the padding.

    The first `by_step` tensors have the shape (L, N, W), the others (N, W). `values` has the widths W of the tensors,
    the addresses of the padded tensors, and the addresses of the rows. The order of the sequences is stored after the
    starts.
    """
    starts, order = words(starts_at), words(starts_at + 8 * (L + 1))
    for k in range(tensor_count):
        padded, flat, pitch = values[tensor_count + k], values[2 * tensor_count + k], values[k] * BYTES
        for t in range(L if k < by_step else 1):
            count, first = (sizes[t], starts[t]) if k < by_step else (N, 0)
            for rank in range(count):
                source, to = padded + (t * N + order[rank]) * pitch, flat + (first + rank) * pitch
                for unit in range(0, values[k], LANES):
                    store(to, unit, values[k] - unit, load(source, unit, values[k] - unit))
'''

SCATTER = '''
def scatter(N, L, sizes: words, starts_at, tensor_count, by_step, *values):
    """Copy rows back to padded tensors. The padding becomes zero. The arguments are those of `gather`."""
    starts, order = words(starts_at), words(starts_at + 8 * (L + 1))
    for k in range(tensor_count):
        padded, flat, pitch = values[tensor_count + k], values[2 * tensor_count + k], values[k] * BYTES
        for t in range(L if k < by_step else 1):
            count, first = (sizes[t], starts[t]) if k < by_step else (N, 0)
            for rank in range(N):
                to, source = padded + (t * N + order[rank]) * pitch, flat + (first + rank) * pitch
                for unit in range(0, values[k], LANES):
                    value = fill(0.0)
                    if rank < count:
                        value = load(source, unit, values[k] - unit)
                    store(to, unit, values[k] - unit, value)
'''


class RaggedLayout(NamedTuple):
    """The layout of sequences of different lengths.

    Attributes:
        layout: the rows of each step. In its memory, the index of the sequence at each rank follows and, for padded
            sequences, the lengths. The forward pass sorts padded sequences.
        is_packed: whether the input and the output are packed rows, as in torch's `PackedSequence`.
    """

    layout: BatchLayout
    is_packed: bool = False

    @property
    def order(self) -> Tensor:
        """(N,) the index of the sequence at each rank."""
        return self.layout.memory[2 * self.layout.steps + 4 :][: self.layout.N]

    @property
    def batch_sizes(self) -> Tensor:
        """(L,) the number of rows of each step."""
        return self.layout.sizes[1:-1]

    @property
    def places(self) -> Tensor | None:
        """(rows,) the index of each row in the padded, time-major input; None if input and output are packed rows."""
        if self.is_packed:
            return None
        layout = self.layout
        is_row = torch.arange(layout.N, device="cpu") < layout.sizes[1:-1, None]
        return (torch.arange(layout.steps, device="cpu")[:, None] * layout.N + self.order)[is_row]


def padded_layout(lengths: Sequence[int], L: int, sorts: bool) -> RaggedLayout:
    """Return the layout of padded sequences of at most L steps.

    Args:
        lengths: the length of each sequence.
        L: the number of steps.
        sorts: whether to sort the sequences now. Otherwise, the tables of the layout are zero until a pass sorts them.
    """
    N = len(lengths)
    memory = _zeros(2 * (L + 2) + N) + array("q", lengths)
    sizes = memory.buffer_info()[0] + 8
    addresses = sizes, sizes + 8 * (L + 2)
    if sorts:
        arguments = array("q", (N, L, *addresses))
        compile_native(SORT).run(arguments.buffer_info()[0])
    tensor = torch.frombuffer(memory, dtype=torch.int64)
    return RaggedLayout(BatchLayout(tensor, sum(lengths), L, N, False, addresses))


@lru_cache(64)
def _zeros(count: int) -> "array[int]":
    return array("q", bytes(8 * count))


def packed_layout(lengths: PackedLengths) -> RaggedLayout:
    """Return the layout of packed sequences."""
    sizes, order = lengths
    values = array("q", (0, *sizes, 0, 0, *accumulate(sizes, initial=0), *order))
    memory, first = torch.frombuffer(values, dtype=torch.int64), values.buffer_info()[0] + 8
    addresses = first, first + 8 * (len(sizes) + 2)
    return RaggedLayout(BatchLayout(memory, sum(sizes), len(sizes), len(order), False, addresses), True)


class CopyPlan(NamedTuple):
    """The copies between padded tensors and the rows of kernels, before and after a pass.

    Attributes:
        gathered: the width W of each tensor that is copied to rows before the pass.
        gathered_by_step: the number of these tensors that have the shape (L, N, W). They precede those of shape (N, W).
        scattered, scattered_by_step: the same for tensors that are copied from rows after the pass.
        sorts: whether the sequences are sorted before the pass.
    """

    gathered: tuple[int, ...]
    gathered_by_step: int
    scattered: tuple[int, ...]
    scattered_by_step: int
    sorts: bool = False

    def parts(self, bits: int, layout: Sequence[int], end: int) -> tuple[list[TaskPart], list[TaskPart]]:
        """Return the task parts that copy tensors before the pass, and those that copy tensors after it.

        Args:
            bits: the size of a number.
            layout: the indices of four call values (see `executable.py`): the numbers of sequences and steps, and the
                addresses of sizes and starts.
            end: the index, in the call values, after the last address of a tensor.
        """

        def create_part(text: str, widths: Sequence[int], by_step: int, end: int) -> TaskPart:
            address_count = 2 * len(widths)
            arguments = array("q", (0, 0, 0, 0, len(widths), by_step, *widths, *[0] * address_count))
            additions = [*enumerate(layout), *enumerate(range(end - address_count, end), 6 + len(widths))]
            return TaskPart(Launch(compile_native(text, bits), arguments), additions)

        sort = [create_part(SORT, (), 0, end)] if self.sorts else []
        gather = create_part(GATHER, self.gathered, self.gathered_by_step, end - 2 * len(self.scattered))
        return [*sort, gather], [create_part(SCATTER, self.scattered, self.scattered_by_step, end)]


class Copies(NamedTuple):
    """The copies of a call, before and after a pass over sequences of different lengths or packed sequences.

    Attributes:
        plan: the plan of the copies.
        tensors: the padded tensors before the pass, their rows, the padded tensors after the pass, and their rows; all
            contiguous. Their addresses are the last values of a call.
    """

    plan: CopyPlan
    tensors: Sequence[Tensor]


def select_rows(tensor: Tensor, indices: Tensor | None) -> Tensor:
    """Return the rows of a tensor with these indices; all rows for None."""
    rows = tensor.flatten(0, -2) if tensor.dim() > 2 else tensor
    return rows if indices is None else rows[indices]


def restore_rows(rows: Tensor, indices: Tensor | None, shape: Sequence[int]) -> Tensor:
    """Return a tensor of this shape with `rows` at these indices, and zeros elsewhere."""
    if indices is not None:
        rows = rows.new_zeros(prod(shape[:-1]), shape[-1]).index_copy(0, indices, rows)
    return rows.view(shape)
