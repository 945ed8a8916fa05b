"""Kernels neither read nor write outside of their buffers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from glassgate.engines.llvm_cpu.processor import host

ROOT = Path(__file__).parents[3]
BFLOAT16 = "bfloat16" if host().bfloat16 else "emulated"


def run_guard(*arguments):
    command = [sys.executable, "-m", "tests.engines.llvm_cpu.guard", *arguments]
    # Waiting threads of OpenMP sleep. Spinning would take the processors from other tests.
    environment = os.environ | {"GOMP_SPINCOUNT": "0"}
    completed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stdout.splitlines()[-1:] + completed.stderr.splitlines()[-20:]


@pytest.mark.parametrize(("page_after", "inside", "outside"), [(True, 9, 10), (False, 0, -1)])
def test_a_write_outside_of_guarded_memory_ends_the_process(page_after, inside, outside):
    code = f"""
import ctypes
from tests.engines.llvm_cpu.guarded_memory import GuardedMemory
start = GuardedMemory(page_after={page_after}).allocate(10)
ctypes.memset(start + {inside}, 1, 1)
print("inside", flush=True)
ctypes.memset(start + {outside}, 1, 1)
"""
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (completed.stdout, completed.returncode) == ("inside\n", -signal.SIGSEGV)


def test_a_few_layers_stay_within_their_buffers():
    run_guard("few", "plain", BFLOAT16, "tiles")


@pytest.mark.matrix
@pytest.mark.parametrize("products", ["plain", *dict.fromkeys((BFLOAT16, "emulated", "tiles", "three"))])
def test_all_cells_stay_within_their_buffers(products):
    run_guard("all", products)
