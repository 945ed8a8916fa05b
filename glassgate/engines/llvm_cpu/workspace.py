"""The workspace of calls, which contains intermediate results. Each thread keeps one, to avoid slow allocations."""

import threading
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from glassgate.engines.memory import empty

Key = TypeVar("Key")

ALIGN = 64
"""The size of a cache line in bytes."""
MAX_KEPT_BYTES = 2**26
"""The size in bytes of the largest workspace that a thread keeps."""


def align_up(size: int) -> int:
    """Round up to a multiple of `ALIGN`."""
    return size + -size % ALIGN


class Region:
    """A region of memory in which blocks are allocated one after the other.

    Args:
        start: the offset of the first block in bytes.
    """

    def __init__(self, start: int = 0) -> None:
        self.end = start

    def allocate(self, size: int) -> int:
        """Allocate a block of `size` bytes and return its offset."""
        offset = self.end
        self.end += align_up(size)
        return offset

    def allocate_all(self, sizes: Mapping[Key, int]) -> dict[Key, int]:
        """Allocate a block of each size and return the offsets, with the same keys."""
        return {key: self.allocate(size) for key, size in sizes.items()}


def borrow(size: int) -> tuple[int, Tensor | None]:
    """Return the address of `size` bytes, and the tensor that owns them. The thread's next call may reuse both."""
    if size > MAX_KEPT_BYTES:
        temporary = empty([size + ALIGN], torch.uint8)
        return align_up(temporary.data_ptr()), temporary
    if size > kept.size:
        kept.memory = None  # free the old memory before the allocation
        kept.memory = empty([size + ALIGN], torch.uint8)
        kept.start, kept.size = align_up(kept.memory.data_ptr()), size
    return kept.start, kept.memory


class _Workspace(threading.local):
    """The workspace that each thread keeps.

    Attributes:
        start, size: its address and its size in bytes.
        memory: the tensor that owns it.
    """

    start, size = 0, 0
    memory: Tensor | None = None


kept = _Workspace()
