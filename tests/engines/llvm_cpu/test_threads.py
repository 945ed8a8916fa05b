"""Threads that work and sleep, torch's or ours: every job runs once, on the first free thread."""

import os
import subprocess
import sys
import threading
import time
from array import array

import pytest
import torch

from glassgate.engines import processors
from glassgate.engines.llvm_cpu.native import native
from glassgate.engines.llvm_cpu.pool import openmp, own, threads
from glassgate.engines.llvm_cpu.small_tasks import FILL_ROW_ADDRESSES
from glassgate.engines.llvm_cpu.tasks import Launch, join_launches

of_torch = pytest.mark.skipif(openmp._openmp is None, reason="torch has no GNU OpenMP here, or one whose threads sleep")


def job(table, first, last, base=0):
    """One that writes base + row * 8 to rows of a table."""
    arguments = array("q", (table.data_ptr(), base, 8, first, last))
    return Launch(native(FILL_ROW_ADDRESSES), arguments)


def rows(n, base=0):
    return torch.arange(n) * 8 + base


@pytest.fixture
def quiet(monkeypatch):
    """No threads have waited for each other yet."""
    monkeypatch.setattr(processors, "contention", processors.Contention())
    return processors.contention


@pytest.mark.parametrize("pause", [0.0, 0.01], ids=["awake", "asleep"])
@pytest.mark.parametrize("run", [threads.run, own.run, pytest.param(openmp.run, marks=of_torch)])
def test_all_jobs_are_done(run, pause):
    for _ in range(20):
        table = torch.zeros(30, dtype=torch.int64)
        run([job(table, k, k + 10) for k in (0, 10, 20)])
        assert torch.equal(table, rows(30))
        time.sleep(pause)


def test_jobs_run_in_order():
    table = torch.zeros(10, dtype=torch.int64)
    join_launches([job(table, 0, 10, base=5), job(table, 2, 4)])()
    wanted = rows(10, base=5)
    wanted[2:4] = rows(10)[2:4]
    assert torch.equal(table, wanted)


def test_a_job_that_no_worker_has_started_runs_on_the_calling_thread(monkeypatch):
    monkeypatch.setattr(own._Worker, "_work", lambda _: threading.Event().wait())  # a thread that never comes
    table, worker = torch.zeros(10, dtype=torch.int64), own._Worker()
    given = job(table, 0, 10)
    worker.give(given)
    worker.finish()
    assert torch.equal(table, rows(10))


@pytest.mark.parametrize(
    ("late", "times"), [(False, 0), (True, 1), (None, 2)], ids=["in time", "late", "no thread pool"]
)
def test_own_threads_are_used_if_those_of_torch_start_late(monkeypatch, quiet, late, times):
    asked = []
    quiet._pause = 60.0
    monkeypatch.setattr(own, "run", lambda jobs: asked.append(jobs))
    monkeypatch.setattr(openmp, "run", lambda jobs: late)
    for _ in range(2):
        threads.run([None, None])
    assert len(asked) == times
    assert bool(quiet) == bool(late)


def test_contention_is_remembered_longer_each_time(monkeypatch, quiet):
    now = [100.0]
    monkeypatch.setattr(processors, "monotonic", lambda: now[0])
    for pause in (0.1, 0.2, 0.4, 0.8):
        assert not quiet
        quiet.note(True)
        now[0] += 0.9 * pause
        assert quiet
        now[0] += 0.2 * pause
    quiet.note(False)
    quiet.note(True)
    now[0] += 0.9
    assert not quiet


@of_torch
def test_a_pool_that_is_too_small_does_nothing():
    """As it is where OpenMP may not have as many threads."""
    code = """
import torch
from tests.engines.llvm_cpu.test_threads import job, rows, openmp
torch.set_num_threads(2)
table = torch.zeros(20, dtype=torch.int64)
jobs = [job(table, 0, 10), job(table, 10, 20)]
print(openmp.run(jobs), table.sum().item())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_THREAD_LIMIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["None", "0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_forked_child_has_its_own_threads():
    """OpenMP's pool does not survive a fork; a process that uses it after a fork waits for ever."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    table = torch.zeros(20, dtype=torch.int64)
    threads.run([job(table, 0, 10), job(table, 10, 20)])
    child = os.fork()
    if child == 0:
        table = torch.zeros(20, dtype=torch.int64)
        threads.run([job(table, 0, 10), job(table, 10, 20)])
        os._exit(0 if table.tolist() == list(range(0, 160, 8)) and own._idle else 1)
    torch.set_num_threads(before)
    assert os.waitpid(child, 0)[1] == 0


MANY = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import torch
import glassgate as gg
from glassgate.engines import processors

processors.available, processors.TIME_SLICE_WORK = lambda: 7, 0

def results(layer, x, threads):
    torch.set_num_threads(threads)
    with gg.engine("cpu"):
        y, _ = layer(x)
        return [y, *torch.autograd.grad(y.sin().sum(), [x, *layer.parameters()])]

for N in (1, 9):  # threads share units and wait for each other at every step, or share rows
    layer, x = gg.LSTM(256, 256), torch.randn(20, N, 256, requires_grad=True)
    for one, seven in zip(results(layer, x, 1), results(layer, x, 7), strict=True):
        assert torch.equal(one, seven)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a system that pins no process")
def test_seven_threads_on_one_processor_give_the_bits_of_one():
    """Other processes may use all processors but one: a waiting thread yields to the thread that it waits for."""
    subprocess.run([sys.executable, "-c", MANY], check=True, timeout=300)


@pytest.mark.matrix
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a system that pins no process")
def test_four_such_processes_on_the_same_processor():
    processes = [subprocess.Popen([sys.executable, "-c", MANY]) for _ in range(4)]
    assert [process.wait(timeout=300) for process in processes] == [0] * 4


MOVED = """
import os, threading, time
import torch
import glassgate as gg

processors, over = sorted(os.sched_getaffinity(0)), threading.Event()

def move():
    while not over.wait(0.005):
        for own in (processors[:1], processors, processors[-1:]):
            for thread in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(thread), own)

def results(layer, x):
    with gg.engine("cpu"):
        y, _ = layer(x)
        return [y, *torch.autograd.grad(y.sin().sum(), [x, *layer.parameters()])]

calls = [(gg.LSTM(256, 256), torch.randn(20, N, 256, requires_grad=True)) for N in (1, 9)]
torch.set_num_threads(1)
expected = [results(*call) for call in calls]
torch.set_num_threads(7)
threading.Thread(target=move, daemon=True).start()
end = time.monotonic() + 5
while time.monotonic() < end:
    for call, those in zip(calls, expected):
        assert all(map(torch.equal, results(*call), those))
over.set()
"""


@pytest.mark.matrix
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a system that pins no process")
def test_a_process_that_is_pinned_elsewhere_all_the_time():
    subprocess.run([sys.executable, "-c", MOVED], check=True, timeout=300)
