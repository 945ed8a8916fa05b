"""`python -m benchmarks.limited`: training steps where a process may use less of its processors than it sees, as in a
container with a limit: one thread and two, ours and torch.nn's. Needs root, and control groups (version 1) of Linux.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from benchmarks.measure import Bench
from benchmarks.rows import Row, stock, works
from benchmarks.turns import Budget

GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD = 100_000
"""Microseconds, as the system has it; in each a group may compute for so long, on all of its processors together."""
BUDGET = Budget(6, most_rounds=9, turn=5 * PERIOD / 1e6, patience=2)
PROCESSORS = (2.0, 1.0, 0.5)


@contextmanager
def limited(processors: float) -> Iterator[None]:
    """Inside, this process and those that it starts may together use so much of the processors."""
    here = GROUPS / f"glassgate-{os.getpid()}"
    here.mkdir()
    try:
        (here / "cpu.cfs_period_us").write_text(str(PERIOD))
        (here / "cpu.cfs_quota_us").write_text(str(int(PERIOD * processors)))
        (here / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (GROUPS / "cgroup.procs").write_text(str(os.getpid()))
        here.rmdir()


def main() -> None:
    """Measures and prints a line for each limit."""
    if not os.access(GROUPS, os.W_OK):
        sys.exit(f"benchmarks.limited: {GROUPS} cannot be written to: this needs root, and control groups of version 1")
    for (N, H), processors, threads in product(((8, 64), (32, 256)), PROCESSORS, (1, 2)):
        with limited(processors), Bench(threads, BUDGET) as bench:
            (point,) = stock(works([(100, N, H)]))
            figure = bench.measure(Row("limited", "", "nn.LSTM", (point,)), point)
        ours, other = (1e3 * figure["contenders"][who]["seconds"] for who in ("ours", figure["against"]))
        print(
            f"L=100 N={N:<3} H={H:<4} {processors:g} of 2 processors, {threads} threads: ours {ours:.2f} ms, "
            f"torch.nn {other:.2f} ms, {figure['figure']:.2f} times as fast",
            flush=True,
        )


if __name__ == "__main__":
    main()
