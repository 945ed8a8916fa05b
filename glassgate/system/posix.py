"""What Linux and macOS have in common."""

import sys

assert sys.platform != "win32"  # for the type checker

import ctypes
import mmap
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

from glassgate.system.portable import System


class Posix(System):
    """A system with POSIX permissions and signals."""

    def yield_function(self) -> int:
        """The address of `sched_yield`."""
        return ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0

    def memory_size(self) -> int | None:
        """The number of pages of physical memory times their size."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def permits_machine_code(self) -> bool:
        """Try to make a page of memory executable."""
        with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
            address = ctypes.addressof(start := ctypes.c_char.from_buffer(page))
            protect = ctypes.CDLL(None).mprotect
            size = ctypes.c_size_t(mmap.PAGESIZE)
            is_permitted = protect(ctypes.c_void_p(address), size, mmap.PROT_READ | mmap.PROT_EXEC) == 0
            protect(ctypes.c_void_p(address), size, mmap.PROT_READ | mmap.PROT_WRITE)
            del start
        return is_permitted

    def release_pages(self, file: mmap.mmap) -> None:
        """Advise the system that the pages are not needed."""
        file.madvise(mmap.MADV_DONTNEED)

    def flush_folder(self, folder: Path) -> None:
        """Write the entries of a folder to the disk."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def read_regular(self, path: Path) -> tuple[bytes, os.stat_result]:
        """Read a file. A symbolic link is not followed, and a pipe is not waited for."""
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{path}: this is not a regular file")
            return file.read(), status

    def is_writable_by_others(self, status: os.stat_result) -> bool:
        """Whether the owner or the mode of a file or folder lets other users write to it."""
        is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        write_by_others = stat.S_IWOTH | (0 if status.st_gid == os.getegid() else stat.S_IWGRP)
        is_of_others = status.st_uid not in (0, os.geteuid())
        return bool(is_of_others or (status.st_mode & write_by_others and not is_sticky))

    def after_fork(self, function: Callable[[], object]) -> None:
        """Register the function with `os.register_at_fork`."""
        os.register_at_fork(after_in_child=function)

    def describe_end(self, number: int) -> str:
        """The name of the signal. Systems send SIGKILL if memory is full."""
        cause = ", probably because memory was full" if number == signal.SIGKILL else ""
        return super().describe_end(number) + cause
