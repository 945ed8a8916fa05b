"""The number of threads of a call: that of torch, limited by the available processors and by the work of the call."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import torch

READ_EVERY = 1.0
"""Seconds after which limits are read again."""
CONTENDED_FOR = (0.1, 8.0)
"""Seconds of contention after threads waited for each other: the least and the most."""
A_SLICE = 100_000_000
"""Multiplications of some milliseconds, about the time for which one process waits while another has its processor."""


def threads() -> int:
    """`torch.get_num_threads()`, limited by the number of processors that the caller may use.

    More threads than processors make no call faster. If a control group limits processor time, as in most containers,
    threads that wait for each other use it up, and then all of them are suspended.
    """
    most = torch.get_num_threads()
    return most if most == 1 else min(most, available())


def worth(work: int, each: int) -> int:
    """The number of threads for some multiplications.

    While other processes use the processors, a thread may wait for the end of a time slice of theirs. Work that takes
    less than a time slice is finished earlier by the running threads.

    Args:
        work: the number of multiplications.
        each: the least number per thread for which another thread pays off.
    """
    if work <= each:
        return 1
    return min(threads(), -(-work // (max(each, A_SLICE) if contention else each)))


def setting() -> tuple[int, bool]:
    """The settings that `worth` depends on."""
    return threads(), contention.until > monotonic()


def available() -> int:
    """The number of processors that the caller may use, by its affinity and the limits of its control groups."""
    return min(_allowed(), _limit.known if monotonic() < _limit.until else _limit.processors())


class Contention:
    """Whether threads recently waited for each other, as they do when other processes use their processors."""

    def __init__(self) -> None:
        self.until, self._pause = 0.0, CONTENDED_FOR[0]

    def __bool__(self) -> bool:
        return monotonic() < self.until

    def note(self, waited: bool) -> None:
        """Note whether threads waited. Each time they did, contention lasts longer."""
        if waited:
            self.until = monotonic() + self._pause
            self._pause = min(2 * self._pause, CONTENDED_FOR[1])
        else:
            self._pause = max(self._pause / 2, CONTENDED_FOR[0])


class Limit:
    """The processor time that the control groups of this process permit.

    Args:
        process: the folder in which Linux lists the groups.
    """

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._process, self.until, self.known = process, 0.0, 0

    def processors(self) -> int:
        """The smallest limit as a number of processors, rounded, at least 1; all processors if there is no limit."""
        now = monotonic()
        if now >= self.until:
            least = min(self._limits(), default=os.cpu_count() or 1)
            self.known, self.until = max(1, int(least + 0.5)), now + READ_EVERY
        return self.known

    def _limits(self) -> Iterator[float]:
        """The processor time of each group around the process, in seconds per second."""
        for group, version in self._groups():
            with suppress(OSError, ValueError):
                if version == 2:
                    quota, period = (group / "cpu.max").read_text().split()
                else:
                    quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                if quota != "max" and int(quota) > 0:
                    yield int(quota) / int(period)

    def _groups(self) -> Iterator[tuple[Path, int]]:
        """The folders of the groups that may limit the process, each with its version of control groups."""
        own = [line.split(":", 2) for line in self._lines("cgroup")]
        paths = {name: path for _, names, path in own for name in names.split(",")}
        for line in self._lines("mountinfo"):
            where, _, what = line.partition(" - ")
            (_, _, _, root, top, *_), (kind, *_, options) = where.split(), what.split()
            version = {"cgroup2": 2, "cgroup": 1}.get(kind)
            if version == 2 or (version == 1 and "cpu" in options.split(",")):
                path = Path(paths.get("" if version == 2 else "cpu", root))
                inside = path.relative_to(root) if path.is_relative_to(root) and ".." not in path.parts else Path()
                yield from ((top / group, version) for group in (inside, *inside.parents))

    def _lines(self, name: str) -> list[str]:
        with suppress(OSError):
            return (self._process / name).read_text(errors="replace").splitlines()
        return []


def _affinity() -> Callable[[], int]:
    """A function that counts the processors that the caller may run on.

    OpenMP's count stays right if OpenMP has bound the caller to one of them (OMP_PROC_BIND).
    """
    if os.name == "posix":
        with suppress(AttributeError):
            count: Callable[[], int] = ctypes.PyDLL(None).omp_get_num_procs
            return count
    if hasattr(os, "sched_getaffinity"):
        return lambda: len(os.sched_getaffinity(0))
    return lambda: os.cpu_count() or 1


_allowed = _affinity()
_limit = Limit()
contention = Contention()
