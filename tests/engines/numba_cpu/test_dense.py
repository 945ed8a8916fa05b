"""Products of whole sequences on the engine's own threads, against torch's in float64."""

import pytest
import torch

from glassgate.engines.numba_cpu import dense
from glassgate.engines.numba_cpu.processor import Processor, host, pretend
from tests.compare import noise

PROCESSORS = [p for p in (Processor(16, 16), Processor(32, 16), Processor(64, 32)) if p.width <= host().width]
SIZES = [(1, 1, 1), (7, 3, 5), (50, 16, 16), (300, 37, 21)]
"""Rows, columns of the input, units; none and all of them whole vectors."""
GATES = (2, 0, 1)


def done(works, parts):
    for work in works:
        for k in range(parts):
            work.part(k, parts)()


def selected(matrix, gates=GATES):
    return matrix.unflatten(0, (len(gates), -1))[list(gates)].flatten(0, 1)


def close(ours, wanted):
    torch.testing.assert_close(ours.double(), wanted.double(), rtol=0, atol=1e-5 * max(1.0, wanted.abs().max().item()))


@pytest.mark.parametrize("processor", PROCESSORS, ids=str)
@pytest.mark.parametrize(("rows", "columns", "units"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products(processor, rows, columns, units, dtype):
    x, weight, d = (
        noise(k, *shape).to(dtype)
        for k, shape in enumerate([(rows, columns), (3 * units, columns), (rows, 3 * units + 5)])
    )
    d = d[:, : 3 * units]
    out, d_x = x.new_empty(rows, 3 * units), noise(3, rows, columns).to(dtype)
    before = d_x.clone()
    outer, total = x.new_empty(3 * units, columns), x.new_empty(3 * units)
    with pretend(processor):
        ahead = dense.panels(weight, 3, GATES, 1, columns_too=False)
        back = dense.panels(weight, 3, GATES, 1, columns_too=True)
        table, rows_work = dense.rows_of(x)
        done([*ahead.work, *back.work, rows_work], 2)
        done([dense.multiply(x, ahead, 3, units, out)], 2)
        done([dense.multiply(d, back, 1, columns, d_x, added=True)], 2)
        done([dense.outer(d, table, 0, outer, total)], 2)
    chosen = selected(weight).double()
    close(out, x.double() @ chosen.t())
    close(d_x, before.double() + d.double() @ chosen)
    close(outer, d.double().t() @ x.double())
    close(total, d.double().sum(0))


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_bits_do_not_depend_on_how_work_is_shared(parts):
    x, d = noise(0, 300, 37).float(), noise(1, 300, 50).float()
    results = []
    for k in (1, parts):
        outer, total = torch.empty(50, 37), torch.empty(50)
        table, rows_work = dense.rows_of(x)
        done([rows_work], 1)
        done([dense.outer(d, table, 0, outer, total)], k)
        results.append((outer, total))
    assert all(map(torch.equal, *results))


def test_a_sum_of_no_rows_alone_is_asked_for_nothing():
    table, rows_work = dense.rows_of(torch.empty(0, 3))
    total = torch.full((4,), 7.0)
    done([rows_work, dense.outer(torch.empty(0, 4), table, 0, None, total)], 1)
    assert total.tolist() == [7.0] * 4
