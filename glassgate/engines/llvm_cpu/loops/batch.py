"""The layout of a batch: the rows of each step."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class BatchLayout(NamedTuple):
    """The rows of each step."""

    memory: Tensor
    """int64, contiguous. It begins with `sizes` and `starts`."""
    rows: int
    steps: int
    N: int
    even: bool
    """Whether each step has all N rows."""

    @property
    def sizes(self) -> Tensor:
        """(L + 2,): the rows of each step, with a zero before and after."""
        return self.memory[: self.steps + 2]

    @property
    def starts(self) -> Tensor:
        """(L + 2,): the index of the first row of each step."""
        return self.memory[self.steps + 2 : 2 * self.steps + 4]

    @property
    def addresses(self) -> tuple[int, int]:
        """The addresses of the entries of the first step in `sizes` and `starts`."""
        at = self.memory.data_ptr() + 8
        return at, at + 8 * (self.steps + 2)


def batch_layout(batch_sizes: Tensor | None, S: int, N: int) -> BatchLayout:
    """The layout of `Steps` with S rows, of N sequences."""
    if batch_sizes is None:
        return _even(S // max(N, 1), N)
    if len(batch_sizes) and int(batch_sizes[-1]) == N:
        return _even(len(batch_sizes), N)
    return _layout(batch_sizes, N, False)


@lru_cache(256)
def _even(steps: int, N: int) -> BatchLayout:
    return _layout(torch.full((steps,), N, device="cpu"), N, True)


def _layout(batch_sizes: Tensor, N: int, even: bool) -> BatchLayout:
    zero = batch_sizes.new_zeros(1)
    sizes = torch.cat([zero, batch_sizes, zero])
    ends = sizes.cumsum(0)
    return BatchLayout(torch.cat([sizes, ends - sizes]), int(ends[-1]), len(batch_sizes), N, even)


@lru_cache(256)
def double_buffer_starts(steps: int, N: int, reverse: bool) -> Tensor:
    """The index of the first row of each step in a double buffer, (L + 2,). The step that runs last has index 0."""
    return (torch.arange(steps + 2, device="cpu") + (1 if reverse else steps)) % 2 * N
