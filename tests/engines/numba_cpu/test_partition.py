"""When threads share the units of a row, and when they had better not."""

import torch

import glassgate as gg
from glassgate.engines.numba_cpu import partition
from glassgate.engines.numba_cpu.pool import openmp, threads
from tests.compare import noise


def test_threads_stop_waiting_for_each_other_for_a_while_where_a_call_takes_three_times_its_best(monkeypatch):
    contention, pace, seen = threads.Contention(), partition._Pace(), []
    monkeypatch.setattr(threads, "contention", contention)
    monkeypatch.setattr(openmp, "_openmp", None)  # whose threads may come late
    monkeypatch.setattr(partition._pace, "waited", lambda *looked: seen.append(looked))
    layer, x, before = gg.GRU(8, 400), noise(1, 9, 1, 8).float(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with gg.engine("cpu"), torch.no_grad():
            layer(x)
            ((call, barrier, _),) = seen
            barrier[1] = 0
            even = call.time
            for seconds, rows, waited in ((1.0, 9, False), (2.9, 9, False), (3.1, 36, False), (3.1, 9, True)):
                call.time = even._replace(rows=rows)
                assert pace.waited(call, barrier, seconds) == waited
            contention._until = float("inf")
            layer(x)
            assert len(seen) == 1
            contention._until = 0.0
            layer(x)
            assert len(seen) == 2
    finally:
        torch.set_num_threads(before)
