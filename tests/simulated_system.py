"""Another system, simulated on Linux: `python -m pytest -p tests.simulated_system -m essential tests`.

`GLASSGATE_SIMULATE` is "windows" (the default), "macos" or "other", where kernels cannot run. Differences from Linux:

- `glassgate.system` has the class of the other system, without OpenMP and CPU affinity.
- The package's modules find no names of `os`, `signal`, `mmap` and `time` that the other system lacks.
- `multiprocessing` starts processes with "spawn".
- On Windows, a file that this process has open or mapped cannot be replaced, renamed or deleted.
"""

import ctypes
import importlib
import mmap
import multiprocessing
import os
import pkgutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import glassgate.system
from glassgate.system import System
from glassgate.system.macos import MacOS
from glassgate.system.windows import Windows

SYSTEMS = {"windows": Windows, "macos": MacOS, "other": System}
NAME = os.environ.get("GLASSGATE_SIMULATE", "windows")
LINUX_ONLY = {"sched_getaffinity", "sched_setaffinity", "sched_yield", "MADV_HUGEPAGE", "posix_fadvise", "memfd_create"}
POSIX_ONLY = {
    *("fork", "register_at_fork", "getuid", "geteuid", "getgid", "getegid", "uname", "sysconf", "mkfifo", "killpg"),
    *("setsid", "pread", "pwrite", "statvfs", "getloadavg", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "WNOHANG"),
    *("SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGCHLD", "SIGQUIT", "setitimer", "pthread_kill", "tzset"),
    *("MAP_PRIVATE", "MAP_SHARED", "MAP_ANONYMOUS", "PROT_READ", "PROT_EXEC", "MADV_DONTNEED", "MADV_FREE", "madvise"),
}
MISSING = LINUX_ONLY if NAME == "macos" else LINUX_ONLY | POSIX_ONLY


class Without(ModuleType):
    """A module without the names that the simulated system lacks."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        if name in MISSING:
            raise AttributeError(f"the simulated {NAME} has no {self.__name__}.{name}")
        return getattr(self.__dict__["_module"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__dict__["_module"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_module"], name)


def is_open(path: Any) -> bool:
    """Whether this process has a file open or mapped."""
    try:
        name = os.path.realpath(path) if not isinstance(path, int) else ""
    except TypeError:
        return False
    if not os.path.isfile(name):
        return False
    links = Path("/proc/self/fd").iterdir()
    if any(os.path.realpath(link) == name for link in links):
        return True
    return f" {name}\n" in Path("/proc/self/maps").read_text("utf-8", errors="replace")


def refusing(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A function of `os` that raises an error if one of its first `count` arguments is a file that is open."""

    def call(*arguments: Any, **options: Any) -> Any:
        for path in arguments[:count]:
            if is_open(path):
                raise PermissionError(13, "The process cannot access the file because it is being used", str(path))
        return function(*arguments, **options)

    return call


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Simulate the system before a module of the package is imported."""
    glassgate.system.SYSTEM = SYSTEMS[NAME]()
    multiprocessing.set_start_method("spawn", force=True)
    if NAME == "windows":
        # The only function of the C library that kernels call.
        Windows.yield_function = lambda self: ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value
        multiprocessing.get_all_start_methods = lambda: ["spawn"]
        os.environ["LOCALAPPDATA"] = tempfile.mkdtemp(prefix="simulated-windows-")
        for function, count in (("replace", 2), ("rename", 2), ("remove", 1), ("unlink", 1)):
            setattr(os, function, refusing(getattr(os, function), count))


_REPLACED = {id(module): Without(module) for module in (os, signal, mmap, time)}


@pytest.fixture(autouse=True, scope="session")
def _package_finds_no_missing_names() -> None:
    import glassgate as package

    if NAME == "other":
        with pytest.warns(UserWarning, match=f"this system is {sys.platform}; layers run on slower engines"):
            package.Recurrent(package.cells.GRUv3(), 3, 4)(torch.zeros(5, 2, 3))
    for info in pkgutil.walk_packages(package.__path__, "glassgate."):
        if info.name.startswith("glassgate.system") or info.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(info.name)
        except ImportError:  # of an optional package
            continue
        for name, value in list(vars(module).items()):
            if id(value) in _REPLACED:
                setattr(module, name, _REPLACED[id(value)])
