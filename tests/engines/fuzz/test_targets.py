"""Generated cells, and all built-in cells, give the same results on every target as on the reference engine."""

import random
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

import glassgate as gg
from tests.engines.fuzz import targets
from tests.engines.fuzz.targets import SANITIZERS, Trial, faults
from tests.engines.fuzz.test_fuzz import LARGE
from tests.engines.fuzz.writing import Written, cells

FUZZ = settings.default.max_examples > 1000
BATCH = 50
"""The number of cells in one C program and one process of Node."""
HAS_CLANG = shutil.which("clang") is not None


def generated(count: int, part: int) -> list[Trial]:
    """Return the trials of generated cells, except those with large numbers. The normal run repeats its cells."""
    drawn: list[Written] = []

    @seed(random.randrange(2**32) if FUZZ else part)
    @settings(max_examples=count, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(cells())
    def draw(written: Written) -> None:
        drawn.append(written)

    draw()
    trials = [targets.trial_of(written) for written in drawn]
    return [trial for trial in trials if trial.expected.isfinite().all() and trial.expected.abs().max() < LARGE]


def built_in() -> list[Trial]:
    """Return the trials of all built-in cells."""
    names = gg.cells.__all__
    layers = [gg.Recurrent(getattr(gg.cells, name)(), 3, 4, dtype=torch.float64) for name in names]
    return [targets.trial_of_layer(name, layer, L=4) for name, layer in zip(names, layers, strict=True)]


def check_targets(trials: list[Trial], folder: Path) -> None:
    """Compare the results of all targets that are cheap for many cells."""
    found = faults(trials, targets.run_session(trials), exact=True)
    found += faults(trials, targets.run_javascript(trials, folder), exact=False)
    found += faults(trials, targets.run_onnx(trials, folder), exact=False)
    found += faults(trials, targets.run_c(trials, folder, True, "gcc", "-O0"), exact=True)
    if HAS_CLANG and FUZZ:
        found += faults(trials, targets.run_c(trials, folder, True, "clang", "-O1", *SANITIZERS), exact=True)
        found += faults(trials, targets.run_c(trials, folder, False, "gcc", "-O0", "-DONE_LANE"), exact=False)
    assert not found, f"{len(found)} of {len(trials)} cells differ; the first:\n{found[0]}"


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
@pytest.mark.hypothesis  # so that `make fuzz` selects it
@pytest.mark.parametrize("part", range(200 if FUZZ else 1))
def test_every_target_equals_the_step(part: int, tmp_path: Path) -> None:
    check_targets(generated(BATCH, part), tmp_path)


def test_built_in_cells_on_every_target(tmp_path: Path) -> None:
    check_targets(built_in(), tmp_path)
