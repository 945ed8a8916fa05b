"""The workspace of calls. Each thread keeps one, because allocation is slow compared with short calls."""

import threading

import torch
from torch import Tensor

from glassgate.engines.memory import empty

ALIGN = 64
MAX_KEPT = 2**26
"""The size in bytes of the largest workspace that a thread keeps."""


def aligned(size: int) -> int:
    """Round up to a multiple of `ALIGN`, the size of a cache line in bytes."""
    return size + -size % ALIGN


def borrow(size: int) -> tuple[int, Tensor | None]:
    """Return the address of `size` bytes that are valid until the thread's next call, and the tensor that owns them."""
    if size > MAX_KEPT:
        temporary = empty([size + ALIGN], torch.uint8)
        return aligned(temporary.data_ptr()), temporary
    kept = _kept
    if size > kept.size:
        kept.memory = None
        kept.memory = empty([size + ALIGN], torch.uint8)
        kept.start, kept.size = aligned(kept.memory.data_ptr()), size
    return kept.start, kept.memory


class _Kept(threading.local):
    """The workspace that each thread keeps."""

    start, size = 0, 0
    memory: Tensor | None = None


_kept = _Kept()
