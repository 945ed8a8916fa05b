"""`python -m benchmarks.limited`: calls where processors are fewer than threads, in the mean over seconds.

A process may be pinned, or its control group may limit the time of processors that it has in 100 ms, as a container's
does: when that is used up all its threads stand still until these are over, which a median of calls does not see.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Bench
from benchmarks.rows import Point, stock, works
from benchmarks.turns import Budget, Workers, surroundings

SIZES = (100, 8, 64), (100, 1, 256), (100, 32, 256)
POINTS = [*stock(works(SIZES)), *stock(works(SIZES, do="inference"))]
GROUPS = Path("/sys/fs/cgroup")
PERIOD = 100_000
"""Microseconds in which a group has its time."""


class Limits(NamedTuple):
    """What a process has: threads of torch, processors to run on, and time of these, in seconds a second."""

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
    """A control group with this limit of processor time; yields a function that moves the calling process into it.

    Raises:
        OSError: the group cannot be made here.
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
    """A row of the table: milliseconds of ours and of torch.nn at each point."""
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
    """Prints the table, row by row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limited", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of calls, of ours and of torch.nn by turns")
    parser.add_argument("--rounds", type=int, default=3, help="turns, of which the median counts")
    options = parser.parse_args()
    print("Milliseconds of an LSTM's call of 100 steps, ours / torch.nn")
    print("| | " + " | ".join(f"{p.ours.do}, N = {p.ours.N}, H = {p.ours.H}" for p in POINTS) + " |")
    print("|---" * (1 + len(POINTS)) + "|")
    with Bench(1, Budget(1)) as bench:
        for limits in LIMITS:
            print(row(bench, limits, options.seconds, options.rounds), flush=True)


if __name__ == "__main__":
    main()
