"""The figure of a point: prepares and checks the contenders, then measures them in interleaved runs."""

import tempfile
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from benchmarks import fresh
from benchmarks.interleaved import (
    Budget,
    PeerError,
    Workers,
    cpu_contention,
    run_interleaved,
    surroundings,
)
from benchmarks.row import Point, Row
from benchmarks.work import Work
from experiments.common.summaries import quartiles, ratios

Figure = dict[str, Any]
"""`figure` with `low` and `high` (quartiles over the rounds), `against`, `rounds`, `contenders`; or only `missing`."""

MOST_BYTES = 4e9
"""Limit of the expected results that are kept on disk for later points of the same run."""


@dataclass
class Truths:
    """Files of the expected results of works, in a temporary folder with a size limit; the oldest are deleted first."""

    folder: Path
    workers: Workers

    def of(self, work: Work) -> str | None:
        """Return the file for a work, or None if nothing is checked."""
        if work.peer == "products":
            return None
        wanted = work.checked().problem()
        if wanted.do == "inference" and self._path(replace(wanted, do="training"), work.dtype).exists():
            wanted = replace(wanted, do="training")
        path = self._path(wanted, work.dtype)
        if not path.exists():
            kept = sorted(self.folder.iterdir(), key=lambda p: p.stat().st_mtime)
            while kept and sum(p.stat().st_size for p in kept) > MOST_BYTES:
                kept.pop(0).unlink()
            self.workers.ask("ours:truth", "truth", work, str(path))
        return str(path)

    def _path(self, problem: Work, dtype: str) -> Path:
        return self.folder / f"{zlib.crc32(f'{problem} {dtype}'.encode()):08x}.pt"


class Bench:
    """The processes, the expected results, and the time budget of a measurement."""

    def __init__(self, threads: int, budget: Budget) -> None:
        self.threads, self.budget, self.workers = threads, budget, Workers(surroundings(threads))
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
    """Return the ratio of two times over all rounds; the other contender is the one with the smallest median."""
    bench.workers.drop()
    contenders = {"ours": point.ours, **point.others}
    about: dict[str, Any] = {"ours": _ready(bench, point.ours)}
    for name, work in point.others.items():
        try:
            about[name] = _ready(bench, work)
        except PeerError as error:
            about[name] = {"missing": str(error)}
    auto = about["ours"].get("auto")
    if (
        auto not in (None, point.ours.engine)
        and point.ours.engine != "auto"
        and all(work.peer != "ours" for work in point.others.values())
    ):
        contenders["auto"] = replace(point.ours, engine="auto")
        about["auto"] = _ready(bench, contenders["auto"])
    contenders = {name: work for name, work in contenders.items() if "missing" not in about[name]}
    if not any(name in contenders for name in point.others):
        return {"missing": "; ".join(f"{name}: {about[name]['missing']}" for name in point.others)}
    with cpu_contention(bench.threads) if row.busy else nullcontext():
        times = run_interleaved(bench.workers, contenders, bench.budget)
    for name, seconds in times.items():
        about[name]["seconds"] = quartiles(seconds)[1] / contenders[name].scale
    best = min((quartiles(times[name])[1], name) for name in point.others if name in times)[1]
    result = _ratio(times["ours"], times[best], row.cost)
    if "auto" in times:
        about["auto"]["figure"] = _ratio(times["auto"], times[best], row.cost)["figure"]
    return {**result, "against": best, "rounds": len(times["ours"]), "contenders": about}


def _ready(bench: Bench, work: Work) -> dict[str, Any]:
    return bench.workers.ask(work.peer, "prepare", work, bench.truths.of(work))


def _ratio(ours: list[float], other: list[float], cost: bool) -> Figure:
    low, figure, high = quartiles(ratios(ours, other) if cost else ratios(other, ours))
    return {"figure": figure, "low": low, "high": high}


def memory(bench: Bench, row: Row, point: Point) -> Figure:
    """Return the ratio of two peaks, each from a fresh process."""
    ((name, other),) = point.others.items()
    peaks = {who: fresh.peak(work, bench.threads) for who, work in (("ours", point.ours), (name, other))}
    ratio = peaks["ours"] / peaks[name]
    about = {who: {"bytes": peak} for who, peak in peaks.items()}
    return {"figure": ratio, "low": ratio, "high": ratio, "against": name, "rounds": 1, "contenders": about}


def growth(bench: Bench, row: Row, point: Point) -> Figure:
    """Return the MiB that the steps of a stream add to the process."""
    return _alone([fresh.growth(point.ours, bench.threads) / 2**20], "ours")


def first_call(bench: Bench, row: Row, point: Point) -> Figure:
    """Return the seconds of a cell's first call with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        return _alone([fresh.first_call(point.ours, bench.threads, cache)], "ours")


def new_cell(bench: Bench, row: Row, point: Point) -> Figure:
    """Return the seconds of a cell's first call if an earlier process has called another cell."""
    with tempfile.TemporaryDirectory() as cache:
        fresh.first_call(replace(point.ours, cell="RNN"), bench.threads, cache)
        return _alone([fresh.first_call(point.ours, bench.threads, cache)], "ours")


def cached_call(bench: Bench, row: Row, point: Point) -> Figure:
    """Return the seconds of a process's first call of a cell that an earlier process has cached."""
    with tempfile.TemporaryDirectory() as cache:
        fresh.first_call(point.ours, bench.threads, cache)
        return _alone(
            [fresh.first_call(point.ours, bench.threads, cache) for _ in range(bench.budget.least_rounds)], "ours"
        )


def importing(bench: Bench, row: Row, point: Point) -> Figure:
    """Return the seconds that `import glassgate` adds to `import torch`."""
    return _alone([fresh.importing(bench.threads) for _ in range(bench.budget.least_rounds)], "ours")


def _alone(values: list[float], who: str) -> Figure:
    low, figure, high = quartiles(values)
    return {"figure": figure, "low": low, "high": high, "against": "", "rounds": len(values), "contenders": {who: {}}}


MEASURES: dict[str, Callable[[Bench, Row, Point], Figure]] = {
    "time": time,
    "memory": memory,
    "growth": growth,
    "first call": first_call,
    "new cell": new_cell,
    "cached call": cached_call,
    "import": importing,
}
