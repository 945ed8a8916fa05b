"""Working memory of calls, which each thread keeps from one to the next: fresh memory costs a good part of a call."""

import threading

import torch
from torch import Tensor

from glassgate.engines.memory import empty

ALIGN = 64
MOST_KEPT = 2**26
"""Bytes that a thread keeps."""


def aligned(size: int) -> int:
    """The next multiple of a line of memory."""
    return size + -size % ALIGN


class Workspace:
    """What one call works in, unwritten.

    Args:
        own: whether it stays as it is; else the thread's next call writes over it.
    """

    def __init__(self, own: bool = False) -> None:
        self._kept = None if own else _kept
        self._free = self._end = self._taken = 0
        if self._kept is not None:
            self._kept.grow()
            self._free, self._end = self._kept.start, self._kept.start + self._kept.room
        self._fresh: list[Tensor] = []

    def take(self, size: int) -> int:
        """The address of as many bytes."""
        size += -size % ALIGN
        self._taken += size
        if self._free + size <= self._end:
            self._free += size
            return self._free - size
        if self._kept is not None:
            self._kept.wanted = max(self._kept.wanted, self._taken)
        self._fresh.append(empty([size + ALIGN], torch.uint8))
        return aligned(self._fresh[-1].data_ptr())


def lent(size: int) -> tuple[int, Tensor | None]:
    """The address of as many bytes, for a call that is over before the thread's next one, and what holds them."""
    if size > MOST_KEPT:
        fresh = empty([size + ALIGN], torch.uint8)
        return aligned(fresh.data_ptr()), fresh
    if size > _kept.room:
        _kept.wanted = max(_kept.wanted, size)
        _kept.grow()
    return _kept.start, _kept.memory


class _Kept(threading.local):
    """Each thread's own."""

    start, room, wanted = 0, 0, 0
    memory: Tensor | None = None

    def grow(self) -> None:
        """Have as much as the largest call has wanted, up to a limit."""
        if min(self.wanted, MOST_KEPT) > self.room:
            self.memory = None
            self.memory = empty([min(self.wanted, MOST_KEPT) + ALIGN], torch.uint8)
            self.start, self.room = aligned(self.memory.data_ptr()), min(self.wanted, MOST_KEPT)


_kept = _Kept()
