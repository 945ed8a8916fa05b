"""The division of a pass among threads: whether they divide the sequences or the units of a row."""

import pytest
import torch

import glassgate as gg
from glassgate.engines import processors
from glassgate.engines.llvm_cpu import partition
from glassgate.engines.llvm_cpu.pool import openmp, threads
from tests.compare import noise


def test_threads_divide_no_units_while_a_loop_with_barriers_is_delayed(monkeypatch):
    contention, recorded = processors.Contention(), []
    monkeypatch.setattr(processors, "contention", contention)
    monkeypatch.setattr(openmp, "_openmp", None)  # threads of OpenMP may start late
    monkeypatch.setattr(partition, "MIN_WORK_PER_THREAD", 1)
    monkeypatch.setattr(partition.LoopTimes, "record", lambda *arguments: recorded.append(arguments))
    layer, x, threads_before = gg.GRU(8, 400), noise(1, 9, 1, 8).float(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with gg.engine("cpu"), torch.no_grad():
            layer(x)
            ((_, plan, layout, _, _),) = recorded
            monkeypatch.undo()
            monkeypatch.setattr(processors, "contention", contention)
            times = partition.LoopTimes()
            for seconds, rows in ((1.0, 9), (2.9, 9), (3.1, 36)):
                assert not times.record(plan, layout._replace(rows=rows), 0, seconds)
            assert times.record(plan, layout, 0, 3.1), "more than three times the shortest time"
            assert times.record(plan, layout, 9, 1.0), "nine long waits in nine steps"
            for until, unit_parts in ((float("inf"), 1), (0.0, 2)):
                contention.until = until
                monkeypatch.setattr(partition, "MIN_WORK_PER_THREAD", 1)
                assert partition.choose_partition([plan], layout).unit_parts == (unit_parts,)
    finally:
        torch.set_num_threads(threads_before)


@pytest.mark.parametrize("lengths", [None, [9, 0, 3, 7, 9]], ids=["whole", "ragged"])
def test_results_are_bitwise_equal_for_one_and_two_threads(monkeypatch, lengths):
    """This includes sums over a row, although the number of vectors per tile depends on the number of rows."""
    layer, x = gg.Recurrent(gg.cells.LayerNormLSTM(), 3, 64), noise(1, 9, 5, 3).float().requires_grad_()
    monkeypatch.setattr(partition, "MIN_WORK_PER_THREAD", 1)
    threads_before, results, launch_counts, run = torch.get_num_threads(), [], [], threads.run
    monkeypatch.setattr(threads, "run", lambda launches: (launch_counts.append(len(launches)), run(launches)))
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            launch_counts.clear()
            with gg.engine("cpu"):
                for _ in range(3):  # the third call is prepared
                    output, (h, c) = layer(x, lengths=lengths)
            d = torch.autograd.grad(output.sin().sum() + h.sum() + c.sum(), [x, *layer.parameters()])
            assert max(launch_counts, default=1) == count
            results.append([output, h, c, *d])
    finally:
        torch.set_num_threads(threads_before)
    assert all(map(torch.equal, *results))
