"""`python -m experiments.quality [CASE ...]` trains the missing runs and writes the pages.

Each case is trained on two sides, with the layers of Glassgate ("ours") and those of `torch.nn` ("plain"), in turn.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiments.common.command_line import Clock, data_folder, select
from experiments.common.environment import ROOT
from experiments.common.simple_models import score_simple_models
from experiments.quality import readme, report
from experiments.quality.case import Case
from experiments.quality.cases import CASES
from experiments.quality.interleaved import TrainingError, run_interleaved
from experiments.quality.store import SIMPLE, Results

FIGURES = Path(__file__).parent / "figures"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases that the command line selects."""
    options = _parser().parse_args(arguments)
    cases = select(CASES, options.cases, "case")
    if options.list:
        for case in cases:
            print(f"{case.name:16}{case.what}; {case.seeds} seeds")
        return
    store = Results(options.out)
    if not options.report:
        for case in cases:
            if store.get(case, 1, SIMPLE) is None:
                settings = {**case.run_options(data_folder()), **case.options}
                scores = score_simple_models(case.task, settings, case.split(data_folder()))
                store.add(case.name, case.key(1, SIMPLE), {"scores": scores})
    if not (options.report or options.baselines):
        run(cases, data_folder(), store, options.jobs, ROOT / "runs" / "results")
    if not any(store.pairs(case) for case in CASES):
        sys.exit(f"expected results of both sides of a case in {options.out}, got none; train some: omit --report")
    report.write(store, options.root / "docs" / "results.md")
    readme.write(store, options.root)
    print(f"The pages: docs/results.md and the READMEs' tables in {options.root}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.quality", description="Trains tasks with Glassgate and with plain PyTorch."
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="case names; * matches any characters (default: all)")
    parser.add_argument("--list", action="store_true", help="list the cases, then exit")
    parser.add_argument("--report", action="store_true", help="write the pages from the JSON files, then exit")
    parser.add_argument("--baselines", action="store_true", help="measure only the simple models, and write the pages")
    parser.add_argument(
        "--jobs", type=int, default=2, help="number of concurrent training runs, one thread each (default: 2)"
    )
    parser.add_argument("--out", type=Path, default=FIGURES, metavar="DIR", help="folder of the JSON files")
    parser.add_argument("--root", type=Path, default=ROOT, metavar="DIR", help="folder with README.md and docs/")
    return parser


def run(cases: Sequence[Case], data: Path, store: Results, jobs: int, runs: Path) -> None:
    """Train the missing runs, and print each epoch. All cases run with the first seed, then with the next one."""
    max_seeds = max(case.seeds for case in cases)
    pairs = [(case, seed) for seed in range(1, max_seeds + 1) for case in cases if seed <= case.seeds]
    missing = {(case.name, seed): store.missing_sides(case, seed) for case, seed in pairs}
    count = sum(map(len, missing.values()))
    print(f"{2 * len(pairs) - count} trainings are done, {count} are missing", flush=True)
    clock = Clock()
    with ThreadPoolExecutor(jobs) as pool:
        trainings = [
            pool.submit(run_interleaved, case, seed, missing[case.name, seed], data, runs, store, clock.print)
            for case, seed in pairs
            if missing[case.name, seed]
        ]
        try:
            for training in trainings:
                training.result()
        except (KeyboardInterrupt, TrainingError) as error:
            pool.shutdown(wait=False, cancel_futures=True)
            sys.exit(f"stopped: {str(error) or 'by Ctrl-C'}; run the same command to continue")


if __name__ == "__main__":
    main()
