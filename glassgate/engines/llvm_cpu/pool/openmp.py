"""Runs jobs on the OpenMP threads of torch.

After each parallel operation of torch, an OpenMP thread spins for some milliseconds while it waits for its next job.
Another thread would have to share the processor with it during that time.
"""

import ctypes
import os
from array import array
from collections.abc import Sequence
from typing import Any

import torch

from glassgate.engines import processors
from glassgate.engines.llvm_cpu.native import native
from glassgate.engines.llvm_cpu.tasks import Launch

BEGUN, MEMBERS, CAME, LATE, SIZE, COUNT, JOBS = range(1, 8)
"""The indices of words in a table: the numbers of jobs begun, of threads in the team and of threads that have arrived;
whether a thread arrived late; the address of `omp_get_num_threads`; the number of jobs; the first job, two words each.
Word 0 is the address of the code that the threads run."""

PATIENCE = 1_000_000
"""The number of polls after which a thread that has not arrived is late: about a millisecond, longer than a wake-up."""

MEMBER = f'''
def member(table):
    """Run jobs that no thread has begun. Then wait for the other threads, and record whether one is late.

    Do nothing if the team is too small.
    """
    fields, polls = words(table), 0
    if team_size(fields[{SIZE}]) < fields[{MEMBERS}]:
        return
    increment(table + 8 * {CAME})
    mine = fetch_increment(table + 8 * {BEGUN})
    while mine < fields[{COUNT}]:
        perform(fields[{JOBS} + 2 * mine], fields[{JOBS} + 2 * mine + 1])
        mine = fetch_increment(table + 8 * {BEGUN})
    while polls < {PATIENCE} and load_acquire(table + 8 * {CAME}) < fields[{MEMBERS}]:
        polls += 1
    if polls == {PATIENCE}:
        fields[{LATE}] = 1
'''

GATHER = '''
def gather(parallel, table, members):
    """Run the jobs of a table on OpenMP threads."""
    in_parallel(parallel, table, members)
'''


def run(jobs: Sequence[Launch]) -> bool | None:
    """Run all jobs in parallel. Return when they are done.

    Returns:
        Whether a thread arrived late. None if no job was run: torch does not use GNU OpenMP, its team is too small, or
        it has more threads than processors. In the last case its threads sleep as soon as they are idle.
    """
    if _openmp is None or processors.threads() < torch.get_num_threads():
        return None
    begin, size = _openmp
    members = max(len(jobs), torch.get_num_threads())
    table = array("q", (native(MEMBER).address, 0, members, 0, 0, size, len(jobs)))
    table.extend([number for job in jobs for number in (job.function.address, job.arguments.buffer_info()[0])])
    call = array("q", (begin, table.buffer_info()[0], members))
    native(GATHER)(call.buffer_info()[0])
    return bool(table[LATE]) if table[CAME] else None


def _find() -> tuple[int, int] | None:
    """The addresses of `GOMP_parallel` and `omp_get_num_threads` if torch's OpenMP has them and its threads spin."""
    if os.name != "posix" or os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        return None
    here = ctypes.CDLL(None)
    try:
        return _address(here.GOMP_parallel), _address(here.omp_get_num_threads)
    except AttributeError:
        return None


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _leave() -> None:
    """Stop using OpenMP in a forked child, which has no OpenMP threads although its OpenMP runtime assumes them."""
    global _openmp
    _openmp = None


_openmp = _find()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave)
