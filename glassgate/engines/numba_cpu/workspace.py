"""The workspace of calls. Each thread keeps it for the next call: fresh memory costs much of a short call's time."""

import threading

import torch
from torch import Tensor

from glassgate.engines.memory import empty

ALIGN = 64
MOST_KEPT = 2**26
"""Bytes that a thread keeps."""


def aligned(size: int) -> int:
    """The next multiple of a cache line."""
    return size + -size % ALIGN


def lent(size: int) -> tuple[int, Tensor | None]:
    """The address of so many bytes for a call that ends before the thread's next one, and the tensor that owns them."""
    if size > MOST_KEPT:
        fresh = empty([size + ALIGN], torch.uint8)
        return aligned(fresh.data_ptr()), fresh
    kept = _kept
    if size > kept.room:
        kept.memory = None
        kept.memory = empty([size + ALIGN], torch.uint8)
        kept.start, kept.room = aligned(kept.memory.data_ptr()), size
    return kept.start, kept.memory


class _Kept(threading.local):
    """Each thread's own."""

    start, room = 0, 0
    memory: Tensor | None = None


_kept = _Kept()
