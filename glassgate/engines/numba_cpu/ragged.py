"""Sequences of different lengths: conversion to the rows of kernels, sorted by length and without padding, and back."""

from array import array
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.backend import Packed
from glassgate.engines.numba_cpu.compile import Function
from glassgate.engines.numba_cpu.loops.batch import BatchLayout
from glassgate.engines.numba_cpu.native import native

SORT = '''
def sort(lengths: words, order: words, sizes: words, starts: words, N, L):
    """Sort sequences by decreasing length: write the sequence at each rank, and the count and start of each step."""
    rows = 0
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
def gather(widths: words, tensors, by_step, order: words, N, L, sizes: words, starts: words, *addresses):
    """Copy padded tensors, `by_step` of them (L, N, W) and the others (N, W), to rows in the order of ranks.

    The padding is not copied. The addresses are those of the padded tensors, then those of the rows.
    """
    for k in range(tensors):
        padded, flat, pitch = addresses[k], addresses[tensors + k], widths[k] * BYTES
        for t in range(L if k < by_step else 1):
            count, first = (sizes[t], starts[t]) if k < by_step else (N, 0)
            for rank in range(count):
                source, to = padded + (t * N + order[rank]) * pitch, flat + (first + rank) * pitch
                for unit in range(0, widths[k], LANES):
                    store(to, unit, widths[k] - unit, load(source, unit, widths[k] - unit))
'''

SCATTER = '''
def scatter(widths: words, tensors, by_step, order: words, N, L, sizes: words, starts: words, *addresses):
    """The inverse of `gather`; the padding becomes zero."""
    for k in range(tensors):
        padded, flat, pitch = addresses[k], addresses[tensors + k], widths[k] * BYTES
        for t in range(L if k < by_step else 1):
            count, first = (sizes[t], starts[t]) if k < by_step else (N, 0)
            for rank in range(N):
                to, source = padded + (t * N + order[rank]) * pitch, flat + (first + rank) * pitch
                for unit in range(0, widths[k], LANES):
                    value = fill(0.0)
                    if rank < count:
                        value = load(source, unit, widths[k] - unit)
                    store(to, unit, widths[k] - unit, value)
'''


class Ragged(NamedTuple):
    """The layout of sequences of different lengths. In its memory, the sequence at each rank follows the layout."""

    layout: BatchLayout
    packed: bool = False
    """Whether input and output are packed rows."""

    @property
    def order(self) -> Tensor:
        """(N,) the index of the sequence at each rank."""
        return self.layout.memory[2 * self.layout.steps + 4 :]

    @property
    def batch_sizes(self) -> Tensor:
        """(L,) the rows of each step."""
        return self.layout.sizes[1:-1]

    @property
    def places(self) -> Tensor | None:
        """(rows,) the index of each row in the padded, time-major input; None if input and output are packed rows."""
        if self.packed:
            return None
        layout = self.layout
        alive = torch.arange(layout.N, device="cpu") < layout.sizes[1:-1, None]
        return (torch.arange(layout.steps, device="cpu")[:, None] * layout.N + self.order)[alive]


def ragged(lengths: Sequence[int], L: int) -> Ragged:
    """The layout of sequences of these lengths, from 0 to L."""
    N, numbers = len(lengths), array("q", lengths)
    memory = torch.empty(2 * (L + 2) + N, dtype=torch.int64, device="cpu")
    sizes = memory.data_ptr()
    starts = sizes + 8 * (L + 2)
    arguments = array("q", (numbers.buffer_info()[0], starts + 8 * (L + 2), sizes, starts, N, L))
    _sort().run(arguments.buffer_info()[0])
    return Ragged(BatchLayout(memory, sum(lengths), L, N, False))


@cache
def _sort() -> Function:
    return native(SORT)


def packed(lengths: Packed) -> Ragged:
    """The layout of packed sequences."""
    sizes, order = lengths
    numbers = array("q", (0, *sizes, 0, 0, *accumulate(sizes, initial=0), *order))
    memory = torch.frombuffer(numbers, dtype=torch.int64)
    return Ragged(BatchLayout(memory, sum(sizes), len(sizes), len(order), False), True)


class Mover:
    """Copies tensors between the padded form and the rows of kernels.

    Args:
        text: `GATHER` or `SCATTER`.
        widths: the widths of the tensors' rows.
        by_step: the number of tensors with a row per step, (L, N, W). The other tensors, (N, W), follow them.
        bits: the size of a number.
    """

    def __init__(self, text: str, widths: tuple[int, ...], by_step: int, bits: int) -> None:
        self._function, self._widths = native(text, bits), array("q", widths)
        self._constants = self._widths.buffer_info()[0], len(widths), by_step

    def __call__(self, ragged: Ragged, padded: Sequence[Tensor], flat: Sequence[Tensor]) -> None:
        """Copy between contiguous padded tensors and rows."""
        memory, _, L, N, _ = ragged.layout
        sizes = memory.data_ptr()
        starts = sizes + 8 * (L + 2)
        arguments = array("q", (*self._constants, starts + 8 * (L + 2), N, L, sizes + 8, starts + 8))
        arguments.extend(map(Tensor.data_ptr, padded))
        arguments.extend(map(Tensor.data_ptr, flat))
        self._function.run(arguments.buffer_info()[0])
