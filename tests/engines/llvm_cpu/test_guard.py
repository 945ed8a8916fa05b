"""Kernels neither read nor write outside of their buffers."""

import subprocess
import sys
from pathlib import Path

import pytest

from glassgate.engines.llvm_cpu.processor import host

BFLOAT16 = "bfloat16" if host().bfloat16 else "emulated"


def run_guard(layers, products):
    command = [sys.executable, "-m", "tests.engines.llvm_cpu.guard", layers, products]
    completed = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stdout.splitlines()[-1:] + completed.stderr.splitlines()[-20:]


def test_a_write_outside_of_guarded_memory_ends_the_process():
    code = "import ctypes; from tests.engines.llvm_cpu.guard import GuardedMemory; "
    code += "start = GuardedMemory(page_after=True).allocate(10); "
    for offset, is_outside in ((9, False), (10, True)):
        completed = subprocess.run([sys.executable, "-c", code + f"ctypes.memset(start + {offset}, 1, 1)"], check=False)
        assert (completed.returncode != 0) == is_outside


@pytest.mark.parametrize("products", ["plain", BFLOAT16, "tiles"])
def test_a_few_layers_stay_within_their_buffers(products):
    run_guard("few", products)


@pytest.mark.matrix
@pytest.mark.parametrize("products", ["plain", *dict.fromkeys((BFLOAT16, "emulated", "tiles", "three"))])
def test_all_cells_stay_within_their_buffers(products):
    run_guard("all", products)
