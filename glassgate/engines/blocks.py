"""Large blocks of memory that are kept for later calls.

Linux provides new memory at the first write to each page and fills it with zeros. For the memory of a long training
sequence this takes about a tenth of a training step, so a freed block is kept for the next call. It is marked with
`MADV_FREE`, which lets Linux take its pages when memory runs short.
"""

import mmap
import weakref
from threading import Lock

HUGE_PAGE = 2**21
"""The size of a huge page in bytes. Sizes of blocks are multiples of it."""
AVAILABLE = hasattr(mmap, "MADV_HUGEPAGE") and hasattr(mmap, "MADV_FREE")
"""Whether the operating system has huge pages and can take back free pages: Linux."""


class Blocks:
    """Blocks of memory: those in use, and free ones for later calls.

    Args:
        max_free: the largest total size of free blocks in bytes. Above it, the oldest free blocks are unmapped.
    """

    def __init__(self, max_free: int) -> None:
        self._max_free, self._free, self._lock = max_free, list[mmap.mmap](), Lock()

    def take(self, size: int) -> memoryview:
        """A block of at least `size` bytes with arbitrary contents. It becomes free when it is no longer referenced."""
        block = self._fitting(size) or _mapped(size)
        memory = memoryview(block)
        weakref.finalize(memory, self._free_again, block).atexit = False
        return memory

    def _fitting(self, size: int) -> mmap.mmap | None:
        """The smallest free block of this size, if it is not more than twice as large."""
        with self._lock:
            fitting = [block for block in self._free if size <= len(block) <= 2 * size]
            chosen = min(fitting, key=len, default=None)
            rest = [block for block in self._free if block is not chosen]
            while sum(map(len, rest)) > self._max_free:
                del rest[0]
            self._free = rest  # a block that was freed after `rest` was computed is lost and unmapped
        return chosen

    def _free_again(self, block: mmap.mmap) -> None:
        block.madvise(mmap.MADV_FREE)
        self._free.append(block)


def _mapped(size: int) -> mmap.mmap:
    block = mmap.mmap(-1, size + -size % HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    return block
