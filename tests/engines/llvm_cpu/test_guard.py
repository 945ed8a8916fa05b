"""No kernel reads or writes outside the buffers that it is given."""

import subprocess
import sys
from pathlib import Path

import pytest

from glassgate.engines.llvm_cpu.processor import host

BFLOAT16 = "bfloat16" if host().bfloat16 else "emulated"


def run(which, products):
    command = [sys.executable, "-m", "tests.engines.llvm_cpu.guard", which, products]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout.splitlines()[-1:] + done.stderr.splitlines()[-20:]


def test_guarded_memory_ends_a_process_that_leaves_it():
    code = "import ctypes; from tests.engines.llvm_cpu.guard import Guarded; at = Guarded(True).take(10); "
    for offset, ends in ((9, False), (10, True)):
        done = subprocess.run([sys.executable, "-c", code + f"ctypes.memset(at + {offset}, 1, 1)"], check=False)
        assert (done.returncode != 0) == ends


@pytest.mark.parametrize("products", ["plain", BFLOAT16, "tiles"])
def test_some_layers(products):
    run("few", products)


@pytest.mark.matrix
@pytest.mark.parametrize("products", ["plain", *dict.fromkeys((BFLOAT16, "emulated", "tiles", "three"))])
def test_all_cells(products):
    run("all", products)
