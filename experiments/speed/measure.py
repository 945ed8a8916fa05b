"""Measures the figure of a point: prepares and checks the contenders, then runs them in turn."""

import tempfile
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from experiments.common.summaries import quartiles, ratios
from experiments.speed.fresh import first_call_with_cache, fresh
from experiments.speed.interleaved import (
    Budget,
    PeerError,
    Workers,
    ask_once,
    cpu_contention,
    process_options,
    run_interleaved,
)
from experiments.speed.row import Point, Row
from experiments.speed.workload import Workload

Figure = dict[str, Any]
"""The result of a point as JSON values.

"figure" is the median over the rounds, and "low" and "high" are the quartiles. "against" is the name of the other
contender, "rounds" the number of rounds, and "contenders" the details of each contender. A point that could not be
measured has only "missing", the reason.
"""

MOST_BYTES = 4e9
"""The maximum size of the expected results on disk."""


@dataclass
class Truths:
    """Stores expected results of workloads in a folder for later points of the same run.

    If their size exceeds `MOST_BYTES`, the oldest are deleted.

    Attributes:
        folder: the folder.
        workers: the processes, which compute the results.
    """

    folder: Path
    workers: Workers

    def file_for(self, workload: Workload) -> str | None:
        """Return the file with the expected results of a workload, or None if nothing is checked."""
        if workload.peer == "products":
            return None
        problem = workload.checked().problem()
        if problem.do == "inference" and self._path(replace(problem, do="training"), workload.dtype).exists():
            problem = replace(problem, do="training")  # its results include those of inference
        path = self._path(problem, workload.dtype)
        if not path.exists():
            kept = sorted(self.folder.iterdir(), key=lambda p: p.stat().st_mtime)
            while kept and sum(p.stat().st_size for p in kept) > MOST_BYTES:
                kept.pop(0).unlink()
            self.workers.ask("ours:truth", "truth", workload, str(path))
        return str(path)

    def _path(self, problem: Workload, dtype: str) -> Path:
        return self.folder / f"{zlib.crc32(f'{problem} {dtype}'.encode()):08x}.pt"


class Bench:
    """Owns the processes and the expected results of a run, and measures points with a time budget."""

    def __init__(self, threads: int, budget: Budget) -> None:
        self.threads, self.budget, self.workers = threads, budget, Workers(process_options(threads))
        self.folder = tempfile.TemporaryDirectory(prefix="glassgate-truths-")
        self.truths = Truths(Path(self.folder.name), self.workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.workers.end()
        self.folder.cleanup()

    def measure(self, row: Row, point: Point) -> Figure:
        """Return the figure of a point, or the reason why it is missing."""
        try:
            return MEASURES[row.measure](self, row, point)
        except PeerError as error:
            return {"missing": str(error)}


def time(bench: Bench, row: Row, point: Point) -> Figure:
    """Measure the ratio of the times of Glassgate and of the fastest other contender (smallest median over rounds)."""
    bench.workers.drop()
    contenders = {"ours": point.ours, **point.others}
    details: dict[str, Any] = {"ours": _prepare(bench, point.ours)}
    for name, workload in point.others.items():
        try:
            details[name] = _prepare(bench, workload)
        except PeerError as error:
            details[name] = {"missing": str(error)}
    auto = details["ours"].get("auto")
    if (
        auto not in (None, point.ours.engine)
        and point.ours.engine != "auto"
        and all(workload.peer != "ours" for workload in point.others.values())
    ):
        contenders["auto"] = replace(point.ours, engine="auto")
        details["auto"] = _prepare(bench, contenders["auto"])
    contenders = {name: workload for name, workload in contenders.items() if "missing" not in details[name]}
    if not any(name in contenders for name in point.others):
        return {"missing": "; ".join(f"{name}: {details[name]['missing']}" for name in point.others)}
    with cpu_contention(bench.threads) if row.busy else nullcontext():
        times = run_interleaved(bench.workers, contenders, bench.budget)
    for name, seconds in times.items():
        details[name]["seconds"] = quartiles(seconds)[1] / contenders[name].scale
    best = min((quartiles(times[name])[1], name) for name in point.others if name in times)[1]
    result = _ratio(times["ours"], times[best], row.cost)
    if "auto" in times:
        details["auto"]["figure"] = _ratio(times["auto"], times[best], row.cost)["figure"]
    return {**result, "against": best, "rounds": len(times["ours"]), "contenders": details}


def _prepare(bench: Bench, workload: Workload) -> dict[str, Any]:
    return bench.workers.ask(workload.peer, "prepare", workload, bench.truths.file_for(workload))


def _ratio(ours: list[float], other: list[float], cost: bool) -> Figure:
    low, figure, high = quartiles(ratios(ours, other) if cost else ratios(other, ours))
    return {"figure": figure, "low": low, "high": high}


def memory(bench: Bench, row: Row, point: Point) -> Figure:
    """Measure the ratio of two peaks of memory, each in a fresh process."""
    ((name, other),) = point.others.items()
    peaks = {"ours": fresh("peak", point.ours, bench.threads), name: fresh("peak", other, bench.threads)}
    ratio = peaks["ours"] / peaks[name]
    details = {contender: {"bytes": peak} for contender, peak in peaks.items()}
    return {"figure": ratio, "low": ratio, "high": ratio, "against": name, "rounds": 1, "contenders": details}


def growth(bench: Bench, row: Row, point: Point) -> Figure:
    """Measure the MiB by which the steps of a stream increase the memory of the process."""
    return _figure_of_ours([fresh("growth", point.ours, bench.threads) / 2**20])


def first_call(
    bench: Bench, row: Row, point: Point, earlier: Callable[[Workload], Workload] | None = None, rounds: int = 1
) -> Figure:
    """Measure the seconds of a cell's first call in a fresh process.

    Args:
        bench, row, point: as for the other measures
        earlier: returns the workload that an earlier process called with the same cache; None for an empty cache
        rounds: the number of processes
    """
    with tempfile.TemporaryDirectory() as cache:
        if earlier is not None:
            first_call_with_cache(earlier(point.ours), bench.threads, cache)
        return _figure_of_ours([first_call_with_cache(point.ours, bench.threads, cache) for _ in range(rounds)])


def new_cell(bench: Bench, row: Row, point: Point) -> Figure:
    """Measure the seconds of a cell's first call after an earlier process has called another cell."""
    return first_call(bench, row, point, lambda workload: replace(workload, cell="RNN"))


def cached_call(bench: Bench, row: Row, point: Point) -> Figure:
    """Measure the seconds of the first call in a process after an earlier process has cached the cell."""
    return first_call(bench, row, point, lambda workload: workload, bench.budget.least_rounds)


def import_time(bench: Bench, row: Row, point: Point) -> Figure:
    """Measure the seconds that `import glassgate` adds to `import torch`."""
    rounds = range(bench.budget.least_rounds)
    return _figure_of_ours([ask_once("experiments.speed.fresh_import", bench.threads) for _ in rounds])


def _figure_of_ours(values: list[float]) -> Figure:
    low, figure, high = quartiles(values)
    return {
        "figure": figure,
        "low": low,
        "high": high,
        "against": "",
        "rounds": len(values),
        "contenders": {"ours": {}},
    }


MEASURES: dict[str, Callable[[Bench, Row, Point], Figure]] = {
    "time": time,
    "memory": memory,
    "growth": growth,
    "first call": first_call,
    "new cell": new_cell,
    "cached call": cached_call,
    "import": import_time,
}
