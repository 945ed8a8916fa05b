"""The table of compiled kernels is current, and no kernel exceeds a chip."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.triton_gpu.offline import CELLS

ROOT = Path(__file__).parents[3]


OLDER = Path(sys.prefix) / "triton-3.6.0"
"""The version before Triton 3.7. `make test-gpu` installs it."""
PAGES = ("gpu-compiled.md",)


def page(name: str = PAGES[0]) -> list[list[str]]:
    return rows_in((ROOT / "docs" / name).read_text())[2:]


def rows_in(text: str) -> list[list[str]]:
    return [[entry.strip() for entry in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def compiled(*cells: str, path: str = "") -> list[list[str]]:
    """The rows of some cells, from a process without the interpreter.

    Args:
        cells: their names.
        path: a folder with another version of Triton.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": path} if path else {}
    command = [sys.executable, "-m", "tests.engines.triton_gpu.offline", *cells]
    return rows_in(
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    )


def test_the_table_is_current_for_one_cell():
    assert [row for row in page() if row[2] == "RNN"] == compiled("RNN")


@pytest.mark.gpu
def test_the_table_is_current():
    assert page() == compiled(*CELLS)


@pytest.mark.gpu
def test_the_version_before_compiles_the_kernels():
    if not OLDER.exists():
        pytest.skip("Triton 3.6.0 is not installed; `make test-gpu` installs it")
    for row in compiled(*dict.fromkeys(row[2] for row in page()), path=str(OLDER)):
        assert max(numbers(row[6])) <= SPILLED.get((row[2], row[4]), 0), row
        assert row[9] in ("", "0"), row


SPILLED = {("LayerNormLSTM", "C backward"): 20, ("LayerNormLSTM", "C backward_in_graph"): 20}
"""The most bytes that a kernel spills; docs/gpu.md names the kernels."""


@pytest.mark.parametrize("name", PAGES)
def test_kernels_fit_and_weights_stay_on_the_chip(name):
    rows = page(name)
    assert {row[2] for row in rows} == {*CELLS}
    for row in rows:
        chips, cell, _, kernel, registers, spilled, shared, _, weights, barriers = row[1:]
        assert max(numbers(registers)) <= 255
        assert max(numbers(shared)) <= (163 if "sm_80" in chips else 227) * 1024
        assert max(numbers(spilled)) <= SPILLED.get((cell, kernel), 0), (cell, kernel)
        assert weights in ("", "0")
        assert barriers in {"A": ("0",), "B": ("1", "2"), "C": ("",)}[kernel[0]]


def numbers(entry: str) -> list[int]:
    """One number, or one for each chip."""
    return [*map(int, entry.split(" / "))]
