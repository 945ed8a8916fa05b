"""Blocks of memory next to inaccessible pages. This module imports no torch, so that a process can load it quickly."""

import ctypes

PAGE = 4096
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class GuardedMemory:
    """Blocks of memory next to an inaccessible page.

    Args:
        page_after: whether the page is directly after each block. Otherwise it is directly before each block.
    """

    def __init__(self, page_after: bool) -> None:
        self.page_after, self.blocks = page_after, list[tuple[int, int]]()

    def allocate(self, size: int) -> int:
        """Allocate `size` bytes, which are NaN as floating-point numbers, and return their address."""
        pages = -(-max(size, 1) // PAGE)
        start = _libc.mmap(None, (pages + 2) * PAGE, 0, 0x22, -1, 0)
        assert start is not None
        assert _libc.mprotect(start + PAGE, pages * PAGE, 3) == 0
        self.blocks.append((start, (pages + 2) * PAGE))
        address = start + PAGE + (pages * PAGE - size if self.page_after else 0)
        ctypes.memset(address, 0xFF, size)
        return address

    def free(self) -> None:
        """Free all blocks."""
        for block in self.blocks:
            _libc.munmap(*block)
        self.blocks.clear()
