"""The table of compiled kernels is current, and every kernel fits on its chips."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton

import glassgate as gg
from tests.engines.llvm_cpu.test_arrays import STRUCTURED
from tests.engines.test_arrays import STEPS
from tests.engines.triton_gpu.offline import BEFORE, CELLS, CHIPS, PAGE

ROOT = Path(__file__).parents[3]
OLDER = Path(sys.prefix) / f"triton-{BEFORE}"
"""The previous version of Triton. `make test-gpu` installs it."""


def table(version: str, *cells: str) -> list[list[str]]:
    """The rows of the page for a version of Triton."""
    return [row for row in rows_in(PAGE.read_text()) if row[0] == version and row[3] in (cells or CELLS)]


def rows_in(text: str) -> list[list[str]]:
    return [[entry.strip() for entry in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def compile_rows(*arguments: str, path: str = "", module: str = "offline") -> list[list[str]]:
    """Compile the kernels of some cells in a process without the interpreter, and return their rows.

    Args:
        arguments: the arguments of the process: the names of the cells, and options.
        path: a folder with another version of Triton.
        module: the module that the process runs.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": path} if path else {}
    command = [sys.executable, "-m", f"tests.engines.triton_gpu.{module}", *arguments]
    return rows_in(
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    )


def test_half_of_the_table_is_current_for_one_cell():
    every, compiled = table(triton.__version__, "RNN"), compile_rows("RNN", "--half")
    assert [row for row in every if row in compiled] == compiled
    assert len(compiled) == len(every) / 2
    letters = [{(row[1], row[2], row[6][0]) for row in rows} for rows in (every, compiled)]
    assert letters[0] == letters[1]


def check_arrays(chip: int, *names: str, path: str = "") -> None:
    """Compile cells that declare axes. Registers are spilled only by cells other than matrix memories of 64 x 64."""
    rows = compile_rows(str(chip), *names, path=path, module="offline_arrays")
    assert len(rows) == 2 * len(names)
    for name, _, registers, spilled, shared in rows:
        assert int(registers) <= 255
        assert int(shared) <= CHIPS[chip].shared
        assert int(spilled) == 0 or name not in gg.cells.MATRIX_MEMORIES


def test_cells_that_declare_axes_compile():
    check_arrays(90, "DeltaNet", "parts", "cumsum")


@pytest.mark.gpu
@pytest.mark.parametrize("chip", CHIPS)
def test_all_cells_that_declare_axes_compile(chip):
    check_arrays(chip, *gg.cells.MATRIX_MEMORIES, *STEPS, *STRUCTURED)


@pytest.mark.gpu
def test_matrix_memories_compile_with_the_previous_version():
    if not OLDER.exists():
        pytest.skip(f"Triton {BEFORE} is not installed; `make test-gpu` installs it")
    check_arrays(90, *gg.cells.MATRIX_MEMORIES, *STEPS, path=str(OLDER))


@pytest.mark.gpu
def test_the_table_is_current():
    assert table(triton.__version__) == compile_rows(*CELLS)


@pytest.mark.gpu
def test_the_table_of_the_previous_version_is_current():
    if not OLDER.exists():
        pytest.skip(f"Triton {BEFORE} is not installed; `make test-gpu` installs it")
    assert table(BEFORE) == compile_rows(*CELLS, path=str(OLDER))


def test_kernels_fit_and_weights_stay_on_the_chip():
    rows = rows_in(PAGE.read_text())[2:]
    for version in {row[0] for row in rows} | {BEFORE}:
        assert {row[3] for row in table(version)} == {*CELLS}
    assert {row[2] for row in table(BEFORE)} == {"sm_90"}
    for row in rows:
        chips, kernel, registers, spilled, shared, _, weights, barriers = row[2], *row[6:]
        assert max(numbers(registers)) <= 255, row
        assert max(numbers(spilled)) == 0, row
        assert max(numbers(shared)) <= min(CHIPS[int(chip[3:])].shared for chip in chips.split(" / ")), row
        assert weights in ("", "0"), row
        assert barriers in {"A": ("0",), "B": ("1", "2"), "C": ("",)}[kernel[0]], row


def numbers(entry: str) -> list[int]:
    """The numbers in an entry: one for all chips, or one for each."""
    return [*map(int, entry.split(" / "))]
