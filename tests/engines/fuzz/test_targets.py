"""Generated cells, and all built-in cells, give the same results on every target as on the reference engine."""

import shutil
from datetime import date
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import glassgate as gg
from tests.engines.fuzz.array_writing import array_cells
from tests.engines.fuzz.drawing import BATCH, check, generated
from tests.engines.fuzz.targets import FURTHER_BUILDS, TARGETS, Trial, trial_of_layer

FUZZ = settings.default.max_examples > 1000
SEEDS = range(200 * date.today().toordinal(), 200 * (date.today().toordinal() + 1)) if FUZZ else range(1)
"""The seeds of the generated cells. `make fuzz` draws other cells every day."""
SELECTED = TARGETS + FURTHER_BUILDS if FUZZ and shutil.which("clang") else TARGETS


def built_in() -> list[Trial]:
    """Return the trials of all built-in cells."""
    names = gg.cells.__all__
    layers = [gg.Recurrent(getattr(gg.cells, name)(), 3, 4, dtype=torch.float64) for name in names]
    return [trial_of_layer(name, layer, L=4) for name, layer in zip(names, layers, strict=True)]


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
@pytest.mark.hypothesis  # so that `make fuzz` selects it
@pytest.mark.parametrize("number", SEEDS)
def test_every_target_equals_the_step(number: int, tmp_path: Path) -> None:
    check(generated(number), SELECTED, tmp_path, f"of python -m tests.engines.fuzz.drawing {number}")


@pytest.mark.filterwarnings("ignore:cell .* runs on the reference engine")
@pytest.mark.hypothesis
@pytest.mark.parametrize("number", SEEDS)
def test_cells_that_declare_axes_on_every_target(number: int, tmp_path: Path) -> None:
    check(generated(number, array_cells, count=BATCH if FUZZ else 20), SELECTED, tmp_path, f"of seed {number}")


def test_built_in_cells_on_every_target(tmp_path: Path) -> None:
    check(built_in(), SELECTED, tmp_path)
