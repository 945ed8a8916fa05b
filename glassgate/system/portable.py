"""What an operating system provides, with implementations that work on every system."""

import atexit
import ctypes
import getpass
import mmap
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO


class System:
    """The interface to an operating system. Methods that a system does not override work everywhere.

    Attributes:
        name: the name of the system, as in `sys.platform`.
        code_model: LLVM's code model for kernels. With "small", calls reach functions within 2 GB of the code.
        has_huge_pages: whether programs can request huge pages, and can keep unused memory that the system may take.
    """

    name = sys.platform
    code_model = "small"
    has_huge_pages = False

    # Processors and threads

    def processor_counter(self) -> Callable[[], int]:
        """A function that returns the number of processors on which the calling thread may run."""
        return lambda: os.cpu_count() or 1

    def processor_limits(self) -> Iterable[float]:
        """The limits of this process's use of processors, in seconds of processor time per second."""
        return ()

    def processor_name(self) -> str:
        """The name of the processor's model."""
        return platform.processor() or platform.machine()

    def current_processor(self) -> int | None:
        """The number of the processor that runs the caller, or None if it is unknown."""
        return None

    def avoid_processor(self, thread_id: int, processor: int) -> None:
        """Exclude a processor from those on which a thread may run, if the system permits it."""

    def openmp(self) -> ctypes.CDLL | None:
        """The GNU OpenMP library of this process; None if there is none."""
        return None

    def yield_function(self) -> int:
        """The address of a C function without arguments that yields the core to another thread; 0 if there is none."""
        return 0

    def permit_tile_registers(self) -> bool:
        """Request tile registers (AMX) for this process and its threads. Return whether the system permits them."""
        return False

    # Memory

    def memory_size(self) -> int | None:
        """The size of the machine's memory in bytes, or None if it is unknown."""
        return None

    def permits_machine_code(self) -> bool:
        """Whether the process may generate machine code. Hardened systems forbid it."""
        return True

    def map_huge_pages(self, size: int) -> mmap.mmap:
        """Map new memory, in huge pages if the system has them."""
        return mmap.mmap(-1, size)

    def advise_huge_pages(self, address: int, size: int) -> None:
        """Request huge pages for memory. The address is a multiple of the size of a small page."""

    def release_when_needed(self, memory: mmap.mmap) -> None:
        """Permit the system to take the pages of unused memory when it needs them."""

    def release_pages(self, file: mmap.mmap) -> None:
        """Release the memory of the pages of a mapped file. They are read again at their next use."""

    # Files

    def cache_root(self) -> Path:
        """The folder in which programs of the user keep caches."""
        return home_folder() / ".cache"

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file. A file at `target` is replaced atomically."""
        os.replace(source, target)

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder and its files, as far as possible."""
        shutil.rmtree(folder, ignore_errors=True)

    def flush_folder(self, folder: Path) -> None:
        """Write the entries of a folder to the disk."""

    def read_regular(self, path: Path) -> tuple[bytes, os.stat_result]:
        """Read a file, and return its content and status. Symbolic links are rejected.

        Raises:
            OSError: this is not a regular file.
        """
        if path.is_symlink() or not path.is_file():
            raise OSError(f"{path}: this is not a regular file")
        with path.open("rb") as file:
            return file.read(), os.fstat(file.fileno())

    def is_writable_by_others(self, status: os.stat_result) -> bool:
        """Whether users other than the current user and root can write to a file or folder with this status."""
        return False

    def temporary_file(self) -> tuple[Path, BinaryIO]:
        """The path of a new file, and the file, open for writing. It is removed when the process ends."""
        handle, name = tempfile.mkstemp(prefix="glassgate-")
        atexit.register(Path(name).unlink, missing_ok=True)
        return Path(name), open(handle, "wb")

    # Processes, pipes and signals

    def after_fork(self, function: Callable[[], object]) -> None:
        """Call a function in each process that is forked from this one."""

    def is_closed_pipe(self, error: OSError) -> bool:
        """Whether an error means that the reader of the output is gone, as in `glassgate --help | head -1`."""
        return isinstance(error, BrokenPipeError)

    def describe_end(self, number: int) -> str:
        """The name of the signal that ended a process, with its probable cause."""
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"signal {number}"


def home_folder() -> Path:
    """The home folder, or a folder for this user in the temporary folder."""
    try:
        return Path.home()
    except RuntimeError:  # HOME is not set, and the user ID has no account
        return Path(tempfile.gettempdir()) / f"glassgate-{_user()}"


def _user() -> str:
    if hasattr(os, "getuid"):
        return str(os.getuid())
    try:
        return getpass.getuser()
    except (OSError, ImportError, KeyError):
        return "user"
