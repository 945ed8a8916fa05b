"""`python -m benchmarks.limited`: mean times of calls with more threads than processors.

A process is pinned, or its control group limits its processor time per 100 ms, as in a container. When this time is
used up, all threads of the process stop for the rest of the 100 ms. The median of single calls would hide these stops.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.interleaved import Budget, Workers, surroundings
from benchmarks.measure import Bench
from benchmarks.row import Point
from benchmarks.rows import stock, works

SIZES = (100, 8, 64), (100, 1, 256), (100, 32, 256)
POINTS = [*stock(works(SIZES)), *stock(works(SIZES, do="inference"))]
GROUPS = Path("/sys/fs/cgroup")
PERIOD = 100_000
"""The period of a control group in microseconds."""


class Limits(NamedTuple):
    """The limits of a process: torch's threads, processors, and processor time in seconds per second."""

    threads: int
    processors: int = 2
    time: float | None = None

    def __str__(self) -> str:
        where = f"{self.threads} threads, {self.processors} processors"
        return where if self.time is None else f"{where}, the time of {self.time:g}"


LIMITS = (
    *(Limits(threads) for threads in (1, 2, 4, 16)),
    Limits(2, 1),
    *(Limits(threads, time=time) for time in (1.5, 1.0, 0.5) for threads in (1, 2, 4)),
)


@contextmanager
def group(time: float) -> Iterator[Callable[[], object]]:
    """Make a control group with this limit of processor time; yield a function that moves the calling process into it.

    Raises:
        OSError: the system does not allow the group.
    """
    of_version_1 = (GROUPS / "cpu").is_dir()
    folder = GROUPS / ("cpu" if of_version_1 else "") / f"glassgate-{os.getpid()}"
    folder.mkdir()
    try:
        quota = round(time * PERIOD)
        if of_version_1:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (folder / "cpu.max").write_text(f"{quota} {PERIOD}")
        yield lambda: (folder / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        with suppress(OSError):
            folder.rmdir()


def row(bench: Bench, limits: Limits, seconds: float, rounds: int) -> str:
    """Return a row of the table: milliseconds of Glassgate and of torch.nn at each point."""
    around = surroundings(limits.threads, processors=limits.processors)
    pin = around["preexec_fn"]
    try:
        with nullcontext(lambda: None) if limits.time is None else group(limits.time) as enter:
            around["preexec_fn"] = lambda: (pin(), enter())
            workers = Workers(around)
            try:
                cells = [_cell(bench, workers, point, seconds, rounds) for point in POINTS]
            finally:
                workers.end()
    except OSError as error:
        cells = [f"not measured, for no control group can be made here: {error}"]
    return f"| {limits} | {' | '.join(cells)} |"


def _cell(bench: Bench, workers: Workers, point: Point, seconds: float, rounds: int) -> str:
    pair = point.ours, *point.others.values()
    for work in pair:
        workers.ask(work.peer, "prepare", work, bench.truths.of(work))
    means = [[workers.ask(work.peer, "mean", work, seconds) for work in pair] for _ in range(rounds)]
    return " / ".join(f"{1e3 * statistics.median(times):.3g}" for times in zip(*means, strict=True))


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limited", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per program and round (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds; the median is printed (default: 3)")
    options = parser.parse_args()
    print("Milliseconds per call of an LSTM with 100 steps, Glassgate / torch.nn")
    print("| | " + " | ".join(f"{p.ours.do}, N = {p.ours.N}, H = {p.ours.H}" for p in POINTS) + " |")
    print("|---" * (1 + len(POINTS)) + "|")
    with Bench(1, Budget(1)) as bench:
        for limits in LIMITS:
            print(row(bench, limits, options.seconds, options.rounds), flush=True)


if __name__ == "__main__":
    main()
