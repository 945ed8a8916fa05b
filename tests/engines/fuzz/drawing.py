"""Draws generated cells by a seed. `python -m tests.engines.fuzz.drawing FIRST LAST` runs those of several seeds.

It draws the cells of a failed test again, or runs many cells and counts those of each target.
"""

import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.engines.fuzz.array_writing import array_cells
from tests.engines.fuzz.targets import FURTHER_BUILDS, TARGETS, Target, Trial, trial_of
from tests.engines.fuzz.test_fuzz import LARGE
from tests.engines.fuzz.writing import Written, cells

BATCH = 50
"""The number of cells of a seed, which are in one C program and one process of Node."""


def generated(number: int, kind: Callable[[], SearchStrategy[Written]] = cells, count: int = BATCH) -> list[Trial]:
    """Return the trials of the cells of a seed, except those with large numbers.

    Args:
        number: the seed.
        kind: `cells` for cells with one number per unit, `array_cells` for cells that declare axes.
        count: the number of cells.
    """
    drawn: list[Written] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(kind())
    def draw(written: Written) -> None:
        drawn.append(written)

    draw()
    trials = [trial_of(written) for written in drawn]
    return [trial for trial in trials if trial.expected.isfinite().all() and trial.expected.abs().max() < LARGE]


def check(trials: Sequence[Trial], targets: Sequence[Target], folder: Path, redraw: str = "") -> None:
    """Raise AssertionError if a trial fails on a target. The folder then contains the source of the failed cells."""
    found = [fault for target in targets for fault in target.faults(trials, folder)]
    (folder / "faults.txt").write_text("\n\n".join(found), encoding="utf-8")
    assert not found, f"{len(found)} faults (all: {folder / 'faults.txt'}) {redraw}; the first:\n{found[0]}"


def main(first: int, last: int) -> None:
    """Run the cells of seeds on every target, and print the number of cells, faults and seconds of each target."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "var.*degrees of freedom")
    count, failed, seconds = 0, Counter[str](), Counter[str]()
    for number in range(first, last + 1):
        start = time.process_time()
        trials = generated(number) + generated(number, array_cells)
        seconds["drawing"] += time.process_time() - start
        count += len(trials)
        with TemporaryDirectory() as folder:
            for target in (*TARGETS, *FURTHER_BUILDS):
                start = time.process_time()
                found = target.faults(trials, Path(folder))
                seconds[target.name] += time.process_time() - start
                failed[target.name] += len(found)
                for fault in found:
                    print(f"seed {number}: {fault}")
        print(f"seed {number}: {count} cells;", dict(failed), {k: round(v) for k, v in seconds.items()}, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[-1]))
