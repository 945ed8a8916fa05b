"""Threads that work and sleep: every job is done once, by whoever comes first."""

import threading
import time
from array import array

import pytest
import torch

from glassgate.engines.numba_cpu import threads
from glassgate.engines.numba_cpu.native import native
from glassgate.engines.numba_cpu.rows import ROWS


def job(table, first, last, base=0):
    """One that writes base + row * 8 to rows of a table."""
    words = array("q", (table.data_ptr(), base, 8, first, last))
    return threads.Job(native(ROWS), words)


def rows(n, base=0):
    return torch.arange(n) * 8 + base


@pytest.mark.parametrize("pause", [0.0, 0.01], ids=["awake", "asleep"])
def test_all_jobs_are_done(pause):
    for _ in range(20):
        table = torch.zeros(30, dtype=torch.int64)
        threads.run([job(table, k, k + 10) for k in (0, 10, 20)])
        assert torch.equal(table, rows(30))
        time.sleep(pause)


def test_jobs_in_turn():
    table = torch.zeros(10, dtype=torch.int64)
    threads.in_turn([job(table, 0, 10, base=5), job(table, 2, 4)])()
    wanted = rows(10, base=5)
    wanted[2:4] = rows(10)[2:4]
    assert torch.equal(table, wanted)


def test_a_job_that_nobody_has_begun_is_done_by_its_giver(monkeypatch):
    monkeypatch.setattr(threads._Worker, "_work", lambda _: threading.Event().wait())  # a thread that never comes
    table, worker = torch.zeros(10, dtype=torch.int64), threads._Worker()
    given = job(table, 0, 10)
    worker.give(given)
    worker.finish()
    assert torch.equal(table, rows(10))
