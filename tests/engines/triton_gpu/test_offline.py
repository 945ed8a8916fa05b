"""The table of compiled kernels is current, and no kernel exceeds a chip."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def page() -> list[list[str]]:
    text = (ROOT / "docs" / "gpu-compiled.md").read_text()
    rows = [[entry.strip() for entry in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return rows[2:]


def compiled(*cells: str) -> list[list[str]]:
    """The rows of some cells, from a process without the interpreter."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.engines.triton_gpu.offline", *cells]
    text = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    return [[entry.strip() for entry in line.split("|")[1:-1]] for line in text.splitlines()]


def test_the_table_is_current_for_one_cell():
    assert [row for row in page() if row[2] == "RNN"] == compiled("RNN")


@pytest.mark.gpu
def test_the_table_is_current():
    assert page() == compiled(*dict.fromkeys(row[2] for row in page()))


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
    ("SLSTM", "B backward_grid"): 36,
    ("LayerNormLSTM", "C backward"): 76,
}
"""Bytes that these kernels spill. All others spill 0."""
