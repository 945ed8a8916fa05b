"""How many threads a call had better run on: torch's, as far as there are processors for them and it pays."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import torch

READ_EVERY = 1.0
"""Seconds for which a limit that was read is taken to hold."""
CONTENDED_FOR = (0.1, 8.0)
"""Seconds for which threads do not wait for each other after they had to: at least, and at most."""
A_SLICE = 100_000_000
"""Multiplications of some milliseconds, about the time for which one process waits while another has its processor."""


def threads() -> int:
    """As many as `torch.get_num_threads()`, and no more than there are processors that the caller may use.

    More threads than processors make no call faster. Where a control group limits the time of processors, as in most
    containers, they also use it up by waiting for each other, and then all of them stand still.
    """
    most = torch.get_num_threads()
    return most if most == 1 else min(most, available())


def worth(work: int, each: int) -> int:
    """How many threads had better do so many multiplications, of which each but one must have so many.

    While other processes have the processors, a thread may have to wait for a time slice of theirs. Less work than
    that is done sooner by those that run.
    """
    if work <= each:
        return 1
    return min(threads(), -(-work // (max(each, A_SLICE) if contention else each)))


def setting() -> tuple[int, bool]:
    """The settings that `worth` depends on."""
    return threads(), contention.until > monotonic()


def available() -> int:
    """How many processors the caller may run on, and its control groups let it keep busy."""
    return min(_allowed(), _limit.known if monotonic() < _limit.until else _limit.processors())


class Contention:
    """Remembers that threads had to wait for each other, as they do when other processes have their processors."""

    def __init__(self) -> None:
        self.until, self._pause = 0.0, CONTENDED_FOR[0]

    def __bool__(self) -> bool:
        return monotonic() < self.until

    def note(self, waited: bool) -> None:
        """See whether they had to; each time they had, the next try comes later."""
        if waited:
            self.until = monotonic() + self._pause
            self._pause = min(2 * self._pause, CONTENDED_FOR[1])
        else:
            self._pause = max(self._pause / 2, CONTENDED_FOR[0])


class Limit:
    """How many processors the control groups of this process let it keep busy.

    Args:
        process: the folder in which Linux says which groups these are.
    """

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._process, self.until, self.known = process, 0.0, 0

    def processors(self) -> int:
        """The nearest whole number to the least limit, but one at least; all there are where there is none."""
        now = monotonic()
        if now >= self.until:
            least = min(self._limits(), default=os.cpu_count() or 1)
            self.known, self.until = max(1, int(least + 0.5)), now + READ_EVERY
        return self.known

    def _limits(self) -> Iterator[float]:
        """Of each group around the process: the processors' time that it may use, in seconds a second."""
        for group, version in self._groups():
            with suppress(OSError, ValueError):
                if version == 2:
                    quota, period = (group / "cpu.max").read_text().split()
                else:
                    quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                if quota != "max" and int(quota) > 0:
                    yield int(quota) / int(period)

    def _groups(self) -> Iterator[tuple[Path, int]]:
        """The folders of groups that may limit the process, and of which version of control groups each is."""
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
    """What counts the processors that the caller may run on.

    OpenMP's own count also holds where OpenMP has bound the caller to one of them (OMP_PROC_BIND).
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
