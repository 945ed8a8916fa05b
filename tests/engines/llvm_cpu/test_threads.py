"""Thread pools: every job runs once, and the pool of torch is used unless there is CPU contention."""

import os
import subprocess
import sys
import threading
import time
from array import array

import pytest
import torch

from glassgate.engines import processors
from glassgate.engines.llvm_cpu.native import compile_native
from glassgate.engines.llvm_cpu.pool import openmp, own, threads
from glassgate.engines.llvm_cpu.small_tasks import ROW_ADDRESSES_KERNEL
from glassgate.engines.llvm_cpu.tasks import Launch, join_launches

needs_openmp = pytest.mark.skipif(openmp._openmp is None, reason="torch has no GNU OpenMP, or its threads sleep")


def job(table, first, last, base=0):
    """A launch that writes base + 8 * k to row k of a table, for the rows from `first` to `last`."""
    arguments = array("q", (table.data_ptr(), base, 8, first, last))
    return Launch(compile_native(ROW_ADDRESSES_KERNEL), arguments)


def rows(n, base=0):
    return torch.arange(n) * 8 + base


@pytest.fixture
def contention(monkeypatch):
    """The state without CPU contention."""
    monkeypatch.setattr(processors, "contention", processors.Contention())
    return processors.contention


@pytest.mark.parametrize("pause", [0.0, 0.01], ids=["awake", "asleep"])
@pytest.mark.parametrize("run", [threads.run, own.run, pytest.param(openmp.run, marks=needs_openmp)])
def test_all_jobs_run(run, pause):
    for _ in range(20):
        table = torch.zeros(30, dtype=torch.int64)
        run([job(table, k, k + 10) for k in (0, 10, 20)])
        assert torch.equal(table, rows(30))
        time.sleep(pause)


def test_jobs_run_in_order():
    table = torch.zeros(10, dtype=torch.int64)
    join_launches([job(table, 0, 10, base=5), job(table, 2, 4)])()
    expected = rows(10, base=5)
    expected[2:4] = rows(10)[2:4]
    assert torch.equal(table, expected)


def test_a_job_that_no_worker_has_started_runs_on_the_calling_thread(monkeypatch):
    monkeypatch.setattr(own._Worker, "_work", lambda _: threading.Event().wait())  # a thread that never starts a job
    table, worker = torch.zeros(10, dtype=torch.int64), own._Worker()
    launch = job(table, 0, 10)
    worker.give(launch)
    worker.finish()
    assert torch.equal(table, rows(10))


@pytest.mark.parametrize(
    ("late", "times"), [(False, 0), (True, 1), (None, 2)], ids=["in time", "late", "no thread pool"]
)
def test_own_threads_are_used_if_those_of_torch_start_late(monkeypatch, contention, late, times):
    runs, contention._duration = [], 60.0
    monkeypatch.setattr(own, "run", lambda jobs: runs.append(jobs))
    monkeypatch.setattr(openmp, "run", lambda jobs: late)
    for _ in range(2):
        threads.run([None, None])
    assert len(runs) == times
    assert bool(contention) == bool(late)


def test_the_assumed_duration_of_contention_doubles_each_time(monkeypatch, contention):
    now = [100.0]
    monkeypatch.setattr(processors, "monotonic", lambda: now[0])
    for duration in (0.1, 0.2, 0.4, 0.8):
        assert not contention
        contention.note(True)
        now[0] += 0.9 * duration
        assert contention
        now[0] += 0.2 * duration
    contention.note(False)
    contention.note(True)
    now[0] += 0.9
    assert not contention


@needs_openmp
def test_openmp_runs_no_job_if_its_team_is_too_small():
    code = """
import torch
from tests.engines.llvm_cpu.test_threads import job, rows, openmp
torch.set_num_threads(2)
table = torch.zeros(20, dtype=torch.int64)
jobs = [job(table, 0, 10), job(table, 10, 20)]
print(openmp.run(jobs), table.sum().item())
"""
    completed = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_THREAD_LIMIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.split() == ["None", "0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_has_its_own_threads():
    """A forked child has no OpenMP threads. If it used OpenMP, it would wait forever."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(2)
    table = torch.zeros(20, dtype=torch.int64)
    threads.run([job(table, 0, 10), job(table, 10, 20)])
    child = os.fork()
    if child == 0:
        table = torch.zeros(20, dtype=torch.int64)
        threads.run([job(table, 0, 10), job(table, 10, 20)])
        os._exit(0 if table.tolist() == list(range(0, 160, 8)) and own._idle else 1)
    torch.set_num_threads(threads_before)
    assert os.waitpid(child, 0)[1] == 0


SEVEN_THREADS = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import torch
import glassgate as gg
from glassgate.engines import processors

processors.available, processors.TIME_SLICE_WORK = lambda: 7, 0

def results(layer, x, thread_count):
    torch.set_num_threads(thread_count)
    with gg.engine("cpu"):
        y, _ = layer(x)
        return [y, *torch.autograd.grad(y.sin().sum(), [x, *layer.parameters()])]

for N in (1, 9):  # threads divide the units, with a barrier at every step, or the sequences
    layer, x = gg.LSTM(256, 256), torch.randn(20, N, 256, requires_grad=True)
    for one, seven in zip(results(layer, x, 1), results(layer, x, 7), strict=True):
        assert torch.equal(one, seven)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_seven_threads_on_one_processor_compute_the_same_as_one_thread():
    """A waiting thread yields the processor to the thread that it waits for."""
    subprocess.run([sys.executable, "-c", SEVEN_THREADS], check=True, timeout=300)


@pytest.mark.matrix
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_four_processes_of_seven_threads_on_one_processor():
    processes = [subprocess.Popen([sys.executable, "-c", SEVEN_THREADS]) for _ in range(4)]
    assert [process.wait(timeout=300) for process in processes] == [0] * 4


MOVED_THREADS = """
import os, threading, time
import torch
import glassgate as gg

processors, stop = sorted(os.sched_getaffinity(0)), threading.Event()

def move_threads():
    while not stop.wait(0.005):
        for affinity in (processors[:1], processors, processors[-1:]):
            for thread in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(thread), affinity)

def results(layer, x):
    with gg.engine("cpu"):
        y, _ = layer(x)
        return [y, *torch.autograd.grad(y.sin().sum(), [x, *layer.parameters()])]

calls = [(gg.LSTM(256, 256), torch.randn(20, N, 256, requires_grad=True)) for N in (1, 9)]
torch.set_num_threads(1)
expected = [results(*call) for call in calls]
torch.set_num_threads(7)
threading.Thread(target=move_threads, daemon=True).start()
end = time.monotonic() + 5
while time.monotonic() < end:
    for call, expected_results in zip(calls, expected):
        assert all(map(torch.equal, results(*call), expected_results))
stop.set()
"""


@pytest.mark.matrix
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_a_process_whose_threads_are_moved_between_processors():
    subprocess.run([sys.executable, "-c", MOVED_THREADS], check=True, timeout=300)
