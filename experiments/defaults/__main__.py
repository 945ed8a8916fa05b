"""`python -m experiments.defaults [SET ...]` trains with the defaults, searches better settings and writes the page."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from experiments.common.command_line import data_folder, select
from experiments.common.environment import ROOT
from experiments.common.simple_models import score_simple_models
from experiments.common.store import Point
from experiments.defaults import report
from experiments.defaults.packages import MissingPackage
from experiments.defaults.search import (
    SEEDS,
    SIMPLE,
    Results,
    Settings,
    best,
    defaults,
    examples_of,
    fixed,
    key,
    search,
    train,
)
from experiments.defaults.sets import COMPARED, SETS, Set
from glassgate.tasks.progress import Interrupted


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements that the command line selects."""
    options = _parser().parse_args(arguments)
    sets = select((*SETS, *COMPARED), options.sets, "set")
    store = Results(options.out)
    if not options.report:
        try:
            measure([*_readable(sets, store, options.seconds)])
        except (KeyboardInterrupt, Interrupted):
            sys.exit("stopped; run the same command to continue")
    report.write(store, options.root / "docs" / "defaults.md")
    print(f"The page: {options.root}/docs/defaults.md")


def _readable(sets: Sequence[Set], store: Results, seconds: float) -> Iterator["_Measurement"]:
    """Yield the measurements on sets whose package is installed, and report the others."""
    for data in sets:
        try:
            yield _Measurement(data, data_folder(), store, seconds)
        except MissingPackage as error:
            print(f"{data.name}: {error}", flush=True)


def measure(runs: Sequence["_Measurement"]) -> None:
    """Train with the compared settings and simple models on all sets, search, and repeat with other seeds.

    The search continues on the set on which it has spent the least time. Sets with short training runs are repeated
    first.
    """
    for run in runs:
        run.compare()
    searching = [run for run in runs if run.data.is_searched]
    while searching:
        run = min(searching, key=_Measurement.spent)
        if not run.search_once():
            searching.remove(run)
    for run in sorted(runs, key=lambda run: run.compare()["seconds"]):
        run.repeat()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.defaults", description="Measures the defaults.")
    parser.add_argument("sets", nargs="*", metavar="SET", help="names of sets; * matches any characters (default: all)")
    parser.add_argument("--report", action="store_true", help="write the page from the stored figures, then exit")
    parser.add_argument(
        "--seconds",
        type=float,
        default=240.0,
        help="processor time of the search on each set, including stored training runs (default: 240)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "figures", metavar="DIR", help="folder of the JSON lines"
    )
    parser.add_argument("--root", type=Path, default=ROOT, metavar="DIR", help="folder that contains docs/")
    return parser


class _Measurement:
    """The training runs on one data set.

    Args:
        data: the data set
        folder: the folder of the data
        store: the stored results
        seconds: the limit of processor time of the search, including stored training runs
    """

    def __init__(self, data: Set, folder: Path, store: Results, seconds: float):
        self.data, self.store, self.seconds = data, store, seconds
        self.split = data.read(folder)
        self.examples = examples_of(data, self.split)
        self.search = search(data, defaults(data, self.examples))
        self.next: Settings | None = None

    def compare(self) -> Point:
        """Train simple models, and with fixed settings and the defaults. Returns the result of the defaults."""
        if not self.store.simple(self.data):
            scores = score_simple_models(self.data.task, self.data.options, self.split)
            by_model = {name: each[self.data.score.key] for name, each in scores.items()}
            self.store.add(SIMPLE, {"set": self.data.name}, {"scores": by_model})
        if self.data.is_searched:
            self.train(fixed(self.data, self.examples))
        return self.train(defaults(self.data, self.examples))

    def spent(self) -> float:
        """Return the seconds that the search has taken."""
        return sum(result["seconds"] for result in self.store.searched(self.data))

    def search_once(self) -> bool:
        """Run one training of the search. Returns False if the search has ended or its time is over."""
        try:
            self.next = self.search.send(self.train(self.next)) if self.next else next(self.search)
        except StopIteration:
            return False
        return self.spent() < self.seconds

    def repeat(self) -> None:
        """Train with the defaults and, after a search, with the best settings found, with the other seeds."""
        compared = [defaults(self.data, self.examples)]
        if self.data.is_searched:
            compared.append(best(self.data, self.store.searched(self.data)))
        for seed in SEEDS[1:]:
            for settings in compared:
                self.train(settings, seed)

    def train(self, settings: Settings, seed: int = SEEDS[0]) -> Point:
        """Return the stored result of a training run, or train and store the result."""
        if stored := self.store.get(self.data, settings, seed):
            return stored
        values = train(self.data, self.split, settings, seed)
        result = self.store.add(self.data.name, key(settings, seed), values)
        text = "  ".join(f"{name} {value:g}" for name, value in asdict(settings).items())
        print(
            f"{time.strftime('%H:%M:%S')}  {self.data.name:22} {text}  seed {seed}  "
            f"test {result['test']:.4f}  {result['seconds']:.0f} s",
            flush=True,
        )
        return result


if __name__ == "__main__":
    main()
