"""Large blocks of memory that are kept for later calls.

Linux maps a page of new memory at the first write to it, and fills it with zeros. With long sequences, this takes about
a tenth of the time of a training step. A freed block is therefore kept for the next call. Linux may reclaim its pages
when memory runs short.
"""

import mmap
import weakref
from threading import Lock

from glassgate.system import SYSTEM

HUGE_PAGE = 2**21
"""The size of a huge page in bytes. Sizes of blocks are multiples of it."""


class Blocks:
    """Blocks of memory: those in use, and free ones for later calls.

    Args:
        max_free: the largest total size of free blocks, in bytes. If it is exceeded, the oldest ones are unmapped.
    """

    def __init__(self, max_free: int) -> None:
        self._max_free, self._free, self._lock = max_free, list[mmap.mmap](), Lock()

    def take(self, size: int) -> memoryview:
        """Return a block of at least `size` bytes with any contents. It becomes free when nothing refers to it."""
        block = self._take_free(size) or SYSTEM.map_huge_pages(size + -size % HUGE_PAGE)
        memory = memoryview(block)
        weakref.finalize(memory, self._free_block, block).atexit = False
        return memory

    def _take_free(self, size: int) -> mmap.mmap | None:
        """Return the smallest free block of `size` to `2 * size` bytes; None if there is none."""
        with self._lock:
            fitting = [block for block in self._free if size <= len(block) <= 2 * size]
            chosen = min(fitting, key=len, default=None)
            rest = [block for block in self._free if block is not chosen]
            while sum(map(len, rest)) > self._max_free:
                del rest[0]
            self._free = rest  # a block that is freed between these lines is unmapped, because `rest` lacks it
        return chosen

    def _free_block(self, block: mmap.mmap) -> None:
        SYSTEM.release_when_needed(block)
        self._free.append(block)
