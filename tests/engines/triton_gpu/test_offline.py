"""The table of compiled kernels is current, and no kernel exceeds a chip."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def page() -> list[list[str]]:
    text = (ROOT / "docs" / "gpu-compiled.md").read_text()
    rows = [[entry.strip() for entry in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return rows[2:]


OLDER = Path(sys.prefix) / "triton-3.6.0"
"""The version before Triton 3.7. `make test-gpu` installs it."""
MOST_SPILLED = 256
"""Bytes that a kernel may spill with that version."""


def compiled(*cells: str, chips: Sequence[str] = (), path: str = "") -> list[list[str]]:
    """The rows of some cells, from a process without the interpreter.

    Args:
        cells: their names.
        chips: those that kernel C is compiled for; all of them if there are none.
        path: a folder with another version of Triton.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": path} if path else {}
    command = [sys.executable, "-m", "tests.engines.triton_gpu.offline", *cells]
    command += ["--chips", *chips] if chips else []
    text = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    return [[entry.strip() for entry in line.split("|")[1:-1]] for line in text.splitlines()]


def test_the_table_is_current_for_one_cell():
    assert [row for row in page() if row[2] == "RNN"] == compiled("RNN")


@pytest.mark.gpu
def test_the_table_is_current():
    assert page() == compiled(*dict.fromkeys(row[2] for row in page()))


@pytest.mark.gpu
def test_the_version_before_compiles_the_kernels():
    if not OLDER.exists():
        pytest.skip("Triton 3.6.0 is not installed; `make test-gpu` installs it")
    rows = compiled(*dict.fromkeys(row[2] for row in page()), chips=["90"], path=str(OLDER))
    assert {row[2] for row in rows} == {row[2] for row in page()}
    for row in rows:
        assert int(row[6]) <= MOST_SPILLED, row
        assert row[9] in ("", "0"), row


def test_kernels_fit_and_weights_stay_on_the_chip():
    rows = page()
    assert len(rows) > 60
    for row in rows:
        chips, cell, _, kernel, registers, spilled, shared, _, weights, barriers = row[1:]
        assert max(map(int, registers.split(" / "))) <= 255
        assert int(shared) <= (163 if "sm_80" in chips else 227) * 1024
        assert max(map(int, spilled.split(" / "))) <= SPILLED.get((cell, kernel), 0), (cell, kernel)
        assert weights in ("", "0")
        assert barriers in {"A": ("0",), "B": ("1", "2"), "C": ("",)}[kernel[0]]


SPILLED = {
    ("RNN", "B forward_grid"): 12,
    ("LSTM", "B forward_grid"): 4,
    ("LSTM", "B backward_grid"): 4,
    ("PeepholeLSTM", "A backward_solo"): 4,
    ("MGU", "B backward_grid"): 8,
    ("LayerNormLSTM", "C backward"): 40,
    ("LayerNormLSTM", "C backward_in_graph"): 196,
}
"""Bytes that these kernels spill. All others spill 0."""
