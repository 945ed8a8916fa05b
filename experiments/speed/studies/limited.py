"""`python -m benchmarks limited` measures mean times of calls with more threads than processors.

The process is pinned to processors. A control group can also limit its processor time per 100 ms, as in a container. A
process that has used up this time stops for the rest of the 100 ms. The median of single calls would hide these stops.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from experiments.speed.interleaved import Budget, Workers, process_options
from experiments.speed.kinds import against_torch, workloads
from experiments.speed.measure import Bench
from experiments.speed.row import Point

SIZES = (100, 8, 64), (100, 1, 256), (100, 32, 256)
POINTS = [*against_torch(workloads(SIZES)), *against_torch(workloads(SIZES, do="inference"))]
GROUPS = Path("/sys/fs/cgroup")
PERIOD = 100_000
"""The period of a control group in microseconds."""


class Limits(NamedTuple):
    """The limits of a process.

    Attributes:
        threads: the number of threads of torch.
        processors: the number of processors.
        time: processor time in seconds per second; None without a limit.
    """

    threads: int
    processors: int = 2
    time: float | None = None

    def __str__(self) -> str:
        text = f"{self.threads} threads, {self.processors} processors"
        return text if self.time is None else f"{text}, processor time of {self.time:g}"


LIMITS = (
    *(Limits(threads) for threads in (1, 2, 4, 16)),
    Limits(2, 1),
    *(Limits(threads, time=time) for time in (1.5, 1.0, 0.5) for threads in (1, 2, 4)),
)


@contextmanager
def control_group(time: float) -> Iterator[Callable[[], object]]:
    """Create a control group with a limit of processor time. Yields a function that moves the calling process into it.

    Raises:
        OSError: the system does not allow the group.
    """
    is_version_1 = (GROUPS / "cpu").is_dir()
    folder = GROUPS / ("cpu" if is_version_1 else "") / f"glassgate-{os.getpid()}"
    folder.mkdir()
    try:
        quota = round(time * PERIOD)
        if is_version_1:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (folder / "cpu.max").write_text(f"{quota} {PERIOD}")
        yield lambda: (folder / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        with suppress(OSError):
            folder.rmdir()


def table_row(bench: Bench, limits: Limits, seconds: float, rounds: int) -> str:
    """Measure a row of the table: milliseconds of Glassgate and of torch.nn at each point."""
    options = process_options(limits.threads, processors=limits.processors)
    pin = options["preexec_fn"]
    try:
        with nullcontext(lambda: None) if limits.time is None else control_group(limits.time) as enter:
            options["preexec_fn"] = lambda: (pin(), enter())
            workers = Workers(options)
            try:
                cells = [_cell(bench, workers, point, seconds, rounds) for point in POINTS]
            finally:
                workers.end()
    except OSError as error:
        cells = [f"not measured, because no control group can be created: {error}"]
    return f"| {limits} | {' | '.join(cells)} |"


def _cell(bench: Bench, workers: Workers, point: Point, seconds: float, rounds: int) -> str:
    pair = point.ours, *point.others.values()
    for workload in pair:
        workers.ask(workload.peer, "prepare", workload, bench.truths.file_for(workload))
    means = [[workers.ask(workload.peer, "mean", workload, seconds) for workload in pair] for _ in range(rounds)]
    return " / ".join(f"{1e3 * statistics.median(times):.3g}" for times in zip(*means, strict=True))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the study."""
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per program and round (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds; the median is printed (default: 3)")


def run(options: argparse.Namespace) -> None:
    """Print the table, row by row."""
    print("Milliseconds per call of an LSTM with 100 steps, Glassgate / torch.nn")
    print("| | " + " | ".join(f"{p.ours.do}, N = {p.ours.N}, H = {p.ours.H}" for p in POINTS) + " |")
    print("|---" * (1 + len(POINTS)) + "|")
    with Bench(1, Budget(1)) as bench:
        for limits in LIMITS:
            print(table_row(bench, limits, options.seconds, options.rounds), flush=True)
