"""When threads share the units of a row, and when they had better not."""

import pytest
import torch

import glassgate as gg
from glassgate.engines import processors
from glassgate.engines.llvm_cpu import partition
from glassgate.engines.llvm_cpu.pool import openmp, threads
from tests.compare import noise


def test_threads_stop_waiting_for_each_other_for_a_while_where_a_call_takes_three_times_its_best(monkeypatch):
    contention, seen = processors.Contention(), []
    monkeypatch.setattr(processors, "contention", contention)
    monkeypatch.setattr(openmp, "_openmp", None)  # whose threads may come late
    monkeypatch.setattr(partition, "MIN_WORK_PER_THREAD", 1)
    monkeypatch.setattr(partition.LoopTimes, "record", lambda *looked: seen.append(looked))
    layer, x, before = gg.GRU(8, 400), noise(1, 9, 1, 8).float(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with gg.engine("cpu"), torch.no_grad():
            layer(x)
            ((_, plan, layout, _, _),) = seen
            monkeypatch.undo()
            monkeypatch.setattr(processors, "contention", contention)
            pace = partition.LoopTimes()
            for seconds, rows, waits, waited in ((1.0, 9, 0, False), (2.9, 9, 0, False), (3.1, 36, 0, False)):
                assert pace.record(plan, layout._replace(rows=rows), waits, seconds) == waited
            assert pace.record(plan, layout, 0, 3.1)
            assert pace.record(plan, layout, 9, 1.0)
            for until, unit_parts in ((float("inf"), 1), (0.0, 2)):
                contention.until = until
                monkeypatch.setattr(partition, "MIN_WORK_PER_THREAD", 1)
                assert partition.choose_partition([plan], layout).unit_parts == (unit_parts,)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("lengths", [None, [9, 0, 3, 7, 9]], ids=["whole", "ragged"])
def test_bits_do_not_depend_on_how_many_threads_share_the_rows(monkeypatch, lengths):
    """Not even sums over a row do: their terms are in four vectors, more or fewer of which are in one tile."""
    layer, x = gg.Recurrent(gg.cells.LayerNormLSTM(), 3, 64), noise(1, 9, 5, 3).float().requires_grad_()
    monkeypatch.setattr(partition, "MIN_WORK_PER_THREAD", 1)
    before, results, at_once, run = torch.get_num_threads(), [], [], threads.run
    monkeypatch.setattr(threads, "run", lambda launches: (at_once.append(len(launches)), run(launches)))
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            at_once.clear()
            with gg.engine("cpu"):
                for _ in range(3):  # the third call is prepared
                    output, (h, c) = layer(x, lengths=lengths)
            d = torch.autograd.grad(output.sin().sum() + h.sum() + c.sum(), [x, *layer.parameters()])
            assert max(at_once, default=1) == count
            results.append([output, h, c, *d])
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *results))
