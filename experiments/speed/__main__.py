"""`python -m benchmarks [ROW ...]` measures rows, stores the results as JSON, and writes the table and the plots."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from experiments.common.command_line import Clock, select
from experiments.common.environment import ROOT, code, environment
from experiments.common.store import Store
from experiments.speed import gpu, report
from experiments.speed.interleaved import Budget
from experiments.speed.measure import Bench, Figure
from experiments.speed.row import Point, Row
from experiments.speed.rows import ROWS
from experiments.speed.workload import Workload

STUDIES = sorted(path.stem for path in Path(__file__).parent.glob("studies/[a-z]*.py"))
FULL, QUICK = Budget(1.5), Budget(0.3, most_rounds=5, sample=0.02, patience=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements that the command line selects."""
    words = sys.argv[1:] if arguments is None else [*arguments]
    if words and words[0] in STUDIES:
        run_study(*words)
        return
    options = _parser().parse_args(words)
    out = options.out or (ROOT / "runs" / "benchmarks-quick" if options.quick else ROOT / "benchmarks" / "results")
    if options.rows[:1] == ["gpu"]:
        gpu.main(out, options.quick, options.rows[1:])
        return
    rows = select(ROWS, options.rows, "row")
    if options.list:
        for row in rows:
            print(f"{row.name:30}{row.what}; compared with {row.against or 'a fixed limit'}; {len(row.points)} points")
        return
    rows = [on_engine(row, options.engine) for row in rows]
    if not options.report:
        with Bench(options.threads, QUICK if options.quick else FULL) as bench:
            run(rows, out, bench, options.quick)
    report.write(out)
    print(f"Table and plot: {out / 'table.md'}, {out / 'plot.png'}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compares the speed of Glassgate and its peers. The first word can also be a study of a single "
        f"feature, followed by its options: {', '.join(STUDIES)}.",
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
        help="folder of the measurements, the table and the plot; missing points are added to existing files",
    )
    parser.add_argument("--engine", default="cpu", help="engine to measure (default: cpu)")
    parser.add_argument("--threads", type=int, default=2, help="threads and processors of each program (default: 2)")
    parser.add_argument("--list", action="store_true", help="list the rows, then exit")
    parser.add_argument("--report", action="store_true", help="write table and plot of stored measurements, then exit")
    return parser


def run_study(name: str, *words: str) -> None:
    """Run a study with its own options."""
    study = import_module(f"experiments.speed.studies.{name}")
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(f"python -m benchmarks {name}", description=study.__doc__, formatter_class=layout)
    study.add_options(parser)
    study.run(parser.parse_args(words))


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
    store, hash_of_code = Store(out), code()
    setting = {"environment": environment(bench.threads), "quick": quick}
    points = [(row, p) for row in rows for p in [p for p in row.points if p.quick or not quick] or row.points[:1]]
    missing = [(row, p) for row, p in points if "figure" not in (store.find(row.name, row.key(p, setting)) or {})]
    print(f"{len(points) - len(missing)} points are measured, {len(missing)} are missing", flush=True)
    clock = Clock()
    for k, (row, point) in enumerate(missing, 1):
        figure = bench.measure(row, point)
        if code() != hash_of_code:
            sys.exit("the code of the package changed during the measurement; run the command again for the new code")
        store.keep(row.name, [row.key(each, setting) for each in row.points])
        store.add(row.name, row.key(point, setting), {"at": point.at, **figure}, **row.head, **setting)
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
