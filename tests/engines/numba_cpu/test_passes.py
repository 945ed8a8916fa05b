"""When threads share the units of a row, and when they had better not."""

import torch

import glassgate as gg
from glassgate.engines.numba_cpu import passes
from tests.compare import noise


def test_threads_stop_meeting_for_a_while_where_a_call_takes_three_times_its_best(monkeypatch):
    crowd, seen = passes._Crowd(), []
    monkeypatch.setattr(passes, "_crowd", crowd)
    monkeypatch.setattr(crowd, "look_at", lambda *looked: seen.append(looked))
    layer, x, threads = gg.GRU(8, 400), noise(1, 9, 1, 8).float(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with gg.engine("cpu"), torch.no_grad():
            layer(x)
            ((call, barrier, _),) = seen
            barrier[1] = 0
            even = call.time
            for seconds, rows, crowded in ((1.0, 9, False), (2.9, 9, False), (3.1, 36, False), (3.1, 9, True)):
                call.time = even._replace(rows=rows)
                passes._Crowd.look_at(crowd, call, barrier, seconds)
                assert (crowd.until > 0) == crowded
            for crowd.until, looked in ((float("inf"), 1), (0.0, 2)):
                layer(x)
                assert len(seen) == looked
    finally:
        torch.set_num_threads(threads)
