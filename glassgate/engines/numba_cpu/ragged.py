"""Sequences of different lengths, sorted by length and without padding, as kernels read them; and back."""

from array import array
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.numba_cpu.compile import Function
from glassgate.engines.numba_cpu.loops.batch import BatchLayout, batch_layout
from glassgate.engines.numba_cpu.native import native

SORT = '''
def sort(address):
    """Sequences by falling length: the sequence of each rank, and the rows of each step and the first of them."""
    job = words(address)
    lengths, order, sizes, starts = words(job[0]), words(job[1]), words(job[2]), words(job[3])
    N, L, rows = job[4], job[5], 0
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
def gather(address):
    """Rows of some padded tensors (L, N, W) in the order of ranks, without the padding."""
    job = words(address)
    order, N, tensors = words(job[0]), job[1], job[2]
    for k in range(3, 3 + 6 * tensors, 6):
        padded, flat, width, L = job[k], job[k + 1], job[k + 2], job[k + 3]
        sizes, starts = words(job[k + 4]), words(job[k + 5])
        for t in range(L):
            for rank in range(sizes[t + 1]):
                source = padded + (t * N + order[rank]) * width * BYTES
                to = flat + (starts[t + 1] + rank) * width * BYTES
                for unit in range(0, width, LANES):
                    store(to, unit, width - unit, load(source, unit, width - unit))
'''

SCATTER = '''
def scatter(address):
    """What `gather` does, backward; the padding becomes zero."""
    job = words(address)
    order, N, tensors = words(job[0]), job[1], job[2]
    for k in range(3, 3 + 6 * tensors, 6):
        padded, flat, width, L = job[k], job[k + 1], job[k + 2], job[k + 3]
        sizes, starts = words(job[k + 4]), words(job[k + 5])
        for t in range(L):
            for rank in range(N):
                to = padded + (t * N + order[rank]) * width * BYTES
                source = flat + (starts[t + 1] + rank) * width * BYTES
                for unit in range(0, width, LANES):
                    value = fill(0.0)
                    if rank < sizes[t + 1]:
                        value = load(source, unit, width - unit)
                    store(to, unit, width - unit, value)
'''


@cache
def _function(text: str, bits: int) -> Function:
    return native(text, bits)


class Ragged(NamedTuple):
    """The layout of sequences of different lengths.

    Attributes:
        layout: the rows of each step.
        order: (N,) the sequence at each rank.
    """

    layout: BatchLayout
    order: Tensor

    @property
    def batch_sizes(self) -> Tensor:
        """(L,) the rows of each step."""
        return self.layout.sizes[1:-1]

    @property
    def places(self) -> Tensor:
        """(rows,) the time-major padded position of each row."""
        layout = self.layout
        alive = torch.arange(layout.N, device="cpu") < layout.sizes[1:-1, None]
        return (torch.arange(layout.steps, device="cpu")[:, None] * layout.N + self.order)[alive]


def ragged(lengths: Sequence[int], L: int) -> Ragged:
    """The layout of sequences of these lengths, from 0 to L."""
    N, memory = len(lengths), torch.empty(len(lengths) + 2 * (L + 2), dtype=torch.int64, device="cpu")
    given, start = array("q", lengths), memory.data_ptr()
    sizes = start + 8 * N
    arguments = array("q", (given.buffer_info()[0], start, sizes, sizes + 8 * (L + 2), N, L))
    _function(SORT, 64).run(arguments.buffer_info()[0])
    order, sizes_of, starts = memory.split((N, L + 2, L + 2))
    return Ragged(BatchLayout(sizes_of, starts, sum(lengths), L, N, False), order)


def gather(ragged: Ragged, tensors: Sequence[Tensor], by_step: Sequence[bool]) -> list[Tensor]:
    """Contiguous tensors (L, N, W), or (N, W) where not `by_step`, as rows."""
    flat = [torch.empty((v.numel() // v.shape[-1], v.shape[-1]), dtype=v.dtype, device="cpu") for v in tensors]
    _move(GATHER, ragged, tensors, flat, by_step)
    return flat


def scatter(ragged: Ragged, flat: Sequence[Tensor], into: Sequence[Tensor], by_step: Sequence[bool]) -> None:
    """Rows back to contiguous tensors (L, N, W), or (N, W) where not `by_step`."""
    _move(SCATTER, ragged, into, flat, by_step)


def _move(text: str, ragged: Ragged, padded: Sequence[Tensor], flat: Sequence[Tensor], by_step: Sequence[bool]) -> None:
    layout = ragged.layout
    once = batch_layout(None, layout.N, layout.N)
    arguments = array("q", (ragged.order.data_ptr(), layout.N, len(flat)))
    for whole, rows, steps in zip(padded, flat, by_step, strict=True):
        rows_of = layout if steps else once
        arguments.extend((whole.data_ptr(), rows.data_ptr(), rows.shape[-1], rows_of.steps))
        arguments.extend((rows_of.sizes.data_ptr(), rows_of.starts.data_ptr()))
    _function(text, 8 * flat[0].element_size()).run(arguments.buffer_info()[0])
