"""Selects the method of multiplication: AMX if the processor has it, the system permits it and a trial succeeds."""

import multiprocessing.spawn
import os
import platform
import signal
import subprocess
import sys
from functools import cache

import llvmlite.binding as llvm

from glassgate.engines.llvm_cpu.cache import CacheEntry, path_of, read, write
from glassgate.engines.llvm_cpu.processor import FEW_ROWS, Processor, host, with_integers
from glassgate.engines.llvm_cpu.sizes import Arithmetic
from glassgate.system import SYSTEM

TRIAL = "glassgate.engines.llvm_cpu.trial"
"""The module of the trial. It runs in a separate process, because an illegal instruction ends the process."""
TIME_LIMIT = 300
"""The time limit of the trial in seconds. It usually takes a few seconds."""


def processor_for(arithmetic: Arithmetic) -> Processor:
    """Return this machine's processor with the method of multiplication for an arithmetic."""
    if arithmetic is Arithmetic.FULL:
        return host().full_precision
    if arithmetic is Arithmetic.INTEGERS:
        return with_integers(host()) if not host().integers else host()
    processor = host()._replace(terms=arithmetic.terms)
    if processor.tiles or processor.bfloat16 != "avx512bf16" or obstacle() is not None:
        return processor
    return with_amx(processor)


def with_amx(processor: Processor) -> Processor:
    """Return the same processor, with tile registers."""
    return processor._replace(tiles="amx")


def is_faster(arithmetic: Arithmetic, rows: int) -> bool:
    """Return whether products in bfloat16 are faster than products in float32, for this number of rows."""
    processor = processor_for(arithmetic).of_rows(rows)
    return bool(processor.bfloat16 if arithmetic is Arithmetic.BFLOAT16 else processor.tiles)


def describe_method(arithmetic: Arithmetic = Arithmetic.BFLOAT16, rows: int = 1) -> str:
    """Describe how products in bfloat16 are computed. The arguments are as in `is_faster`."""
    processor, three = processor_for(arithmetic), arithmetic is Arithmetic.SPLIT_BFLOAT16
    if not is_faster(arithmetic, rows):
        limit = f"more than {FEW_ROWS} sequences" if processor.tiles else f"AMX-BF16 ({obstacle()})"
        return "none, computed in float32" + (f'; "high" needs {limit}' if three else "")
    if processor.tiles:
        return "by AMX-BF16" + (", three instead of one in float32" if three else "")
    return f"by AVX512-BF16; not by AMX-BF16: {obstacle()}"


@cache
def obstacle() -> str | None:
    """Return the reason why this process does not use tile registers; None if it does."""
    features = llvm.get_host_cpu_features()
    if not (features.get("amx-tile") and features.get("amx-bf16")):
        return "this processor does not have it"
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    if limit.upper() not in ("", "ALL", "DEFAULT") and "AMX" not in limit.upper():
        return f"ONEDNN_MAX_CPU_ISA is {limit}"
    if not SYSTEM.permit_tile_registers():
        return "the operating system does not permit its registers in this process"
    path = path_of(TRIAL, platform.release())
    result = read(path)
    if result is None:
        fault, is_permanent = run_trial()
        result = CacheEntry(TRIAL, fault.encode())
        if is_permanent:
            write(path, result)
    return result.content.decode() or None


def run_trial() -> tuple[str, bool]:
    """Run the trial of tile registers. Return its error or an empty string, and whether to store the result."""
    if getattr(sys, "frozen", False):
        return "a frozen program cannot try it", False
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [os.fsdecode(multiprocessing.spawn.get_executable() or ""), "-P", "-m", TRIAL]
    try:
        completed = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True, timeout=TIME_LIMIT)
    except (OSError, subprocess.TimeoutExpired) as fault:
        return f"it could not be tried ({type(fault).__name__})", False
    if completed.returncode < 0:
        ended_by = signal.Signals(-completed.returncode).name
        return f"a trial of it was ended by {ended_by}", ended_by in ("SIGILL", "SIGSEGV", "SIGBUS", "SIGABRT")
    if completed.returncode > 0:
        return f"a trial of it failed: {(completed.stderr.strip().splitlines() or ['?'])[-1]}", True
    return "", True
