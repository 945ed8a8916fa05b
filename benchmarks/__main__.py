"""`python -m benchmarks [ROW ...]` measures rows, stores the results as JSON, and writes the table and the plots."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import gpu, report
from benchmarks.interleaved import Budget
from benchmarks.measure import Bench, Figure
from benchmarks.results import Store
from benchmarks.row import Point, Row
from benchmarks.rows import ROWS
from benchmarks.workload import Workload
from experiments.common.command_line import Clock, select
from experiments.common.environment import ROOT, code, environment

FULL, QUICK = Budget(1.5), Budget(0.3, most_rounds=5, sample=0.02, patience=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line selects."""
    options = _parser().parse_args(arguments)
    if options.rows[:1] == ["gpu"]:
        folder = ROOT / "runs" / "benchmarks-quick" if options.quick else ROOT / "benchmarks" / "results"
        gpu.main((options.out or folder) / "gpu.json", options.quick, options.rows[1:])
        return
    rows = select(ROWS, options.rows, "row")
    if options.list:
        for row in rows:
            print(f"{row.name:30}{row.what}; compared with {row.against or 'a fixed limit'}; {len(row.points)} points")
        return
    out = options.out or (ROOT / "runs" / "benchmarks-quick" if options.quick else ROOT / "benchmarks" / "results")
    rows = [on_engine(row, options.engine) for row in rows]
    if not options.report:
        with Bench(options.threads, QUICK if options.quick else FULL) as bench:
            run(rows, out, bench, options.quick)
    report.write(out)
    print(f"Table and plot: {out / 'table.md'}, {out / 'plot.png'}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compares the speed of Glassgate and its peers."
    )
    parser.add_argument(
        "rows",
        nargs="*",
        metavar="ROW",
        help="row names; * matches any characters (default: all); gpu [PART ...] measures the GPU engine",
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure only some points of each row, with less time for each"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of the JSON files, the table and the plot; missing points are added to existing files",
    )
    parser.add_argument("--engine", default="cpu", help="engine to measure (default: cpu)")
    parser.add_argument("--threads", type=int, default=2, help="threads and processors of each program (default: 2)")
    parser.add_argument("--list", action="store_true", help="list the rows, then exit")
    parser.add_argument("--report", action="store_true", help="write table and plot from the JSON files, then exit")
    return parser


def on_engine(row: Row, engine: str) -> Row:
    """Return the row with the workloads of Glassgate on this engine, except those that use `auto`."""

    def with_engine(workload: Workload) -> Workload:
        return workload if workload.engine == "auto" else replace(workload, engine=engine)

    points = [
        Point(with_engine(p.ours), {name: with_engine(workload) for name, workload in p.others.items()})
        for p in row.points
    ]
    return replace(row, points=tuple(points))


def run(rows: Sequence[Row], out: Path, bench: Bench, quick: bool = False) -> None:
    """Measure the points that the files in `out` do not contain, and print each result."""
    setting = {"environment": environment(bench.threads), "quick": quick}
    stores = [(row, Store(out, row, setting)) for row in rows]
    points = {row.name: [p for p in row.points if p.quick or not quick] or list(row.points[:1]) for row in rows}
    missing = [(row, store, point) for row, store in stores for point in points[row.name] if store.lacks(point)]
    print(
        f"{sum(map(len, points.values())) - len(missing)} points are measured, {len(missing)} are missing", flush=True
    )
    clock = Clock()
    for k, (row, store, point) in enumerate(missing, 1):
        figure = bench.measure(row, point)
        if code() != setting["environment"]["code"]:
            sys.exit("the code of the package changed during the measurement; run the command again for the new code")
        store.add(point, figure)
        clock.print(f"{k:4}/{len(missing)}  {to_line(row, point, figure)}")


def to_line(row: Row, point: Point, figure: Figure) -> str:
    """Return a point and its result as one line of text."""
    sizes = " ".join(f"{name}={value}" for name, value in point.at.items())
    if "missing" in figure:
        return f"{row.name:30}{sizes:36} missing: {figure['missing']}"
    error = figure["contenders"]["ours"].get("error")
    against = f" against {figure['against']}" if figure["against"] else ""
    return (
        f"{row.name:30}{sizes:36} {figure['figure']:.3g} {row.unit} ({figure['low']:.3g} to {figure['high']:.3g})"
        f"{against}{'' if error is None else f', error {error:.0e}'}"
    )


if __name__ == "__main__":
    main()
