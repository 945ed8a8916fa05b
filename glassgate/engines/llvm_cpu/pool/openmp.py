"""Runs jobs on the OpenMP threads of torch.

After each parallel operation of torch, an OpenMP thread spins for some milliseconds while it waits for its next job.
During that time, a thread of another pool would have to share the processor with the OpenMP thread.
"""

import ctypes
import os
from array import array
from collections.abc import Sequence
from typing import Any

import torch

from glassgate.engines import processors
from glassgate.engines.llvm_cpu.native import compile_native
from glassgate.engines.llvm_cpu.tasks import Launch
from glassgate.system import SYSTEM

JOBS_BEGUN, MEMBERS, ARRIVED, LATE, TEAM_SIZE_ADDRESS, JOB_COUNT, JOBS = range(1, 8)
"""The indices of words in a table: the number of jobs begun; the requested number of threads; the number of threads
that have arrived; whether a thread arrived late; the address of `omp_get_num_threads`; the number of jobs; the first
job (the addresses of its code and arguments). Word 0 of the table is the address of the code that the threads run."""

MAX_POLLS = 1_000_000
"""After this number of polls (about a millisecond), an absent thread is late: other processes use its processor."""

MEMBER = f'''
def member(table):
    """Run jobs that no thread has begun. Then wait for the other threads, and record whether one of them is late.

    If the team has fewer threads than requested, do nothing.
    """
    fields, polls = words(table), 0
    if team_size(fields[{TEAM_SIZE_ADDRESS}]) < fields[{MEMBERS}]:
        return
    increment(table + 8 * {ARRIVED})
    mine = fetch_increment(table + 8 * {JOBS_BEGUN})
    while mine < fields[{JOB_COUNT}]:
        perform(fields[{JOBS} + 2 * mine], fields[{JOBS} + 2 * mine + 1])
        mine = fetch_increment(table + 8 * {JOBS_BEGUN})
    while polls < {MAX_POLLS} and load_acquire(table + 8 * {ARRIVED}) < fields[{MEMBERS}]:
        polls += 1
    if polls == {MAX_POLLS}:
        fields[{LATE}] = 1
'''

RUN_TEAM = '''
def run_team(parallel, table, members):
    """Run the jobs of a table on OpenMP threads."""
    in_parallel(parallel, table, members)
'''


def run(jobs: Sequence[Launch]) -> bool | None:
    """Run all jobs in parallel. Return when they are done.

    Returns:
        Whether a thread arrived late. None if no job was run: torch has no spinning GNU OpenMP threads, the OpenMP
        team is too small, or torch has more threads than processors. In the last case, OpenMP threads sleep as soon as
        they are idle.
    """
    if _openmp is None or processors.threads() < torch.get_num_threads():
        return None
    parallel_address, team_size_address = _openmp
    members = max(len(jobs), torch.get_num_threads())
    table = array("q", (compile_native(MEMBER).address, 0, members, 0, 0, team_size_address, len(jobs)))
    table.extend([number for job in jobs for number in (job.function.address, job.arguments.buffer_info()[0])])
    arguments = array("q", (parallel_address, table.buffer_info()[0], members))
    compile_native(RUN_TEAM)(arguments.buffer_info()[0])
    return bool(table[LATE]) if table[ARRIVED] else None


def _find_openmp() -> tuple[int, int] | None:
    """Return the addresses of `GOMP_parallel` and `omp_get_num_threads` if torch has it and its threads spin."""
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        return None
    library = SYSTEM.openmp()
    return None if library is None else (_address(library.GOMP_parallel), _address(library.omp_get_num_threads))


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _disable() -> None:
    """Stop using OpenMP in a forked child. Its OpenMP runtime assumes threads that exist only in the parent."""
    global _openmp
    _openmp = None


_openmp = _find_openmp()
SYSTEM.after_fork(_disable)
