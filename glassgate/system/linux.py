"""Linux."""

import sys

assert sys.platform == "linux"  # for the type checker

import ctypes
import mmap
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from glassgate.system import control_groups
from glassgate.system.portable import home_folder
from glassgate.system.posix import Posix

_OPEN_FILES = Path("/proc/self/fd")
"""The files that this process has open."""


class Linux(Posix):
    """Linux with glibc or musl."""

    has_huge_pages = hasattr(mmap, "MADV_HUGEPAGE") and hasattr(mmap, "MADV_FREE")

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._current_processor = getattr(self._library, "sched_getcpu", None)

    def processor_counter(self) -> Callable[[], int]:
        """A function that returns the number of processors in the affinity of the caller.

        OpenMP's own count is preferred, because it is correct even if OpenMP has bound the caller to one processor
        (OMP_PROC_BIND). It exists after torch has been imported.
        """
        counter = getattr(ctypes.PyDLL(None), "omp_get_num_procs", None)
        return counter or (lambda: len(os.sched_getaffinity(0)))

    def processor_limits(self) -> Iterable[float]:
        """The limits of the control groups that contain the process."""
        return control_groups.processor_limits()

    def processor_name(self) -> str:
        """The first name in /proc/cpuinfo; on ARM it has none."""
        with suppress(OSError):
            if found := re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE):
                return found[1]
        return super().processor_name()

    def current_processor(self) -> int | None:
        """The result of `sched_getcpu`."""
        return None if self._current_processor is None else int(self._current_processor())

    def avoid_processor(self, thread_id: int, processor: int) -> None:
        """Change the affinity of the thread, except where a sandbox forbids it."""
        with suppress(OSError):
            others = os.sched_getaffinity(0) - {processor}
            if others:
                os.sched_setaffinity(thread_id, others)

    def permit_tile_registers(self) -> bool:
        """Linux needs the request `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`, once per process."""
        if platform.machine() != "x86_64":
            return False
        arch_prctl, request, tile_data = 158, 0x1023, 18
        return bool(self._library.syscall(arch_prctl, request, tile_data) == 0)

    def openmp(self) -> ctypes.CDLL | None:
        """GNU OpenMP among the symbols of the process, or the libgomp that a library has loaded, torch's if it has one.

        Other packages, such as scikit-learn, load copies with own numbers of threads.
        """
        if hasattr(self._library, "GOMP_parallel"):
            return self._library
        with suppress(OSError):
            maps = Path("/proc/self/maps").read_text("utf-8", errors="replace")
            if found := re.findall(r"/\S*libgomp[^/\s]*\.so\S*", maps):
                return ctypes.CDLL(max(found, key=lambda path: "/torch/" in path or "/torch.libs/" in path))
        return None

    def map_huge_pages(self, size: int) -> mmap.mmap:
        """Map private memory with MADV_HUGEPAGE."""
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.madvise(mmap.MADV_HUGEPAGE)
        return block

    def advise_huge_pages(self, address: int, size: int) -> None:
        """Call `madvise` with MADV_HUGEPAGE."""
        self._library.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_HUGEPAGE)

    def release_when_needed(self, memory: mmap.mmap) -> None:
        """Advise with MADV_FREE."""
        memory.madvise(mmap.MADV_FREE)

    def cache_root(self) -> Path:
        """`XDG_CACHE_HOME`. An empty or relative path is ignored, as its specification requires."""
        folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return folder if folder.is_absolute() else home_folder() / ".cache"

    def temporary_file(self) -> tuple[Path, BinaryIO]:
        """A file without a name, so the system deletes it even if the process is killed."""
        if not _OPEN_FILES.is_dir():
            return super().temporary_file()
        file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115, the caller closes it
        return _OPEN_FILES / str(os.dup(file.fileno())), file  # the second descriptor stays open
