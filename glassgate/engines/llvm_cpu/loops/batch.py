"""The layout of a batch: the rows of each step."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class BatchLayout(NamedTuple):
    """The rows of each step of a batch. Row r of each step belongs to sequence r.

    Attributes:
        memory: the tables `sizes` and `starts`, int64, contiguous.
        rows: the number of rows of all steps.
        steps: the number of steps.
        N: the number of sequences.
        has_equal_lengths: whether each step has N rows.
        addresses: the addresses of the entries of the first step in `sizes` and `starts`.
    """

    memory: Tensor
    rows: int
    steps: int
    N: int
    has_equal_lengths: bool
    addresses: tuple[int, int]

    @property
    def sizes(self) -> Tensor:
        """(steps + 2,): the number of rows of each step, with a zero before the first and after the last step."""
        return self.memory[: self.steps + 2]

    @property
    def starts(self) -> Tensor:
        """(L + 2,): the index of the first row of each step, with an entry before the first and after the last step."""
        return self.memory[self.steps + 2 : 2 * self.steps + 4]


def batch_layout(batch_sizes: Tensor | None, S: int, N: int) -> BatchLayout:
    """Return the layout of S rows of N sequences, which have equal lengths if `batch_sizes` is None."""
    if batch_sizes is None:
        return _equal_lengths_layout(S // max(N, 1), N)
    if len(batch_sizes) and int(batch_sizes[-1]) == N:
        return _equal_lengths_layout(len(batch_sizes), N)
    return _layout(batch_sizes, N, False)


@lru_cache(256)
def _equal_lengths_layout(steps: int, N: int) -> BatchLayout:
    return _layout(torch.full((steps,), N, device="cpu"), N, True)


def _layout(batch_sizes: Tensor, N: int, has_equal_lengths: bool) -> BatchLayout:
    zero = batch_sizes.new_zeros(1)
    sizes = torch.cat([zero, batch_sizes, zero])
    ends = sizes.cumsum(0)
    memory, steps = torch.cat([sizes, ends - sizes]), len(batch_sizes)
    first = memory.data_ptr() + 8
    return BatchLayout(memory, int(ends[-1]), steps, N, has_equal_lengths, (first, first + 8 * (steps + 2)))


@lru_cache(256)
def double_buffer_starts(steps: int, N: int, reverse: bool) -> Tensor:
    """Return the index of the first row of each step in a double buffer, (L + 2,).

    A double buffer has memory for the N rows of two steps. Steps use the two halves alternately. The last step of the
    loop uses the first half.
    """
    return (torch.arange(steps + 2, device="cpu") + (1 if reverse else steps)) % 2 * N
