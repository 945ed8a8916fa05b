"""Products of whole sequences, against torch's in float64."""

import pytest
import torch

from glassgate.engines.numba_cpu import dense
from glassgate.engines.numba_cpu.dense import Matrix, Rows
from glassgate.engines.numba_cpu.processor import Processor, host, pretend
from glassgate.engines.numba_cpu.rows import last, rows_of
from glassgate.engines.numba_cpu.timetable import timetable
from glassgate.engines.numba_cpu.work import Series
from tests.compare import noise

PROCESSORS = [p for p in (Processor(16, 16), Processor(32, 16), Processor(64, 32)) if p.width <= host().width]
SIZES = [(1, 1, 1), (7, 3, 5), (50, 16, 16), (300, 37, 21)]
"""Rows, columns of the input, units; none and all of them whole vectors."""
GATES = (2, 0, 1)


def facts(**tensors):
    """Where tensors lie, by name."""
    return {name: tensor.data_ptr() for name, tensor in tensors.items()}


def done(works, parts, known):
    for work in works:
        for k in range(parts):
            work.part(known, k, parts)()


def lying(name, matrix):
    return Rows(name, matrix.stride(0) * matrix.element_size(), matrix.shape[1])


def memory(panels):
    return torch.empty(panels.size, dtype=torch.uint8)


def table(n):
    return torch.zeros(n, dtype=torch.int64)


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
    bits = x.element_size() * 8
    matrix = Matrix("weight", 3, 3 * units, columns, bits)
    with pretend(processor):
        ahead = dense.panels("ahead", matrix, GATES, 1, columns_too=False)
        back = dense.panels("back", matrix, GATES, 1, columns_too=True)
        places = {"ahead": memory(ahead), "back": memory(back), "table": table(len(x))}
        known = facts(x=x, weight=weight, d=d, out=out, d_x=d_x, outer=outer, total=total, **places)
        done([*ahead.work, *back.work, rows_of("table", lying("x", x), len(x))], 2, known)
        a_gate = Rows("out", out.stride(0) * bits // 8, units)
        done([dense.multiply(lying("x", x), ahead, 3, a_gate, len(x), bits)], 2, known)
        done([dense.multiply(lying("d", d), back, 1, lying("d_x", d_x), len(x), bits, added=True)], 2, known)
        right = ("table", 0)
        done([dense.outer(lying("d", d), len(x), right, lying("outer", outer), "total", bits)], 2, known)
    chosen = selected(weight).double()
    close(out, x.double() @ chosen.t())
    close(d_x, before.double() + d.double() @ chosen)
    close(outer, d.double().t() @ x.double())
    close(total, d.double().sum(0))


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_series_does_what_its_works_do(parts):
    x, d = noise(0, 50, 37).float(), noise(1, 50, 20).float()
    results = []
    for together in (False, True):
        outer, total, places = torch.empty(20, 37), torch.empty(20), [table(50), table(50)]
        known = facts(x=x, d=d, first=places[0], second=places[1], outer=outer, total=total)
        tables = [rows_of("first", lying("x", x), 50), rows_of("second", lying("d", d), 50)]
        product = dense.outer(lying("d", d), 50, ("first", 0), lying("outer", outer), "total", 32)
        for works in (tables, [product]):
            done([Series(works)] if together else works, parts, known)
        results.append((outer, total, *places))
    assert results[0][2][1] - results[0][2][0] == 37 * 4
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_bits_do_not_depend_on_how_work_is_shared(parts):
    x, d = noise(0, 300, 37).float(), noise(1, 300, 50).float()
    results = []
    for k in (1, parts):
        outer, total, places = torch.empty(50, 37), torch.empty(50), table(300)
        known = facts(x=x, d=d, table=places, outer=outer, total=total)
        done([rows_of("table", lying("x", x), 300)], 1, known)
        done([dense.outer(lying("d", d), 300, ("table", 0), lying("outer", outer), "total", 32)], k, known)
        results.append((outer, total))
    assert all(map(torch.equal, *results))


def test_a_sum_of_no_rows_alone_is_asked_for_nothing():
    total = torch.full((4,), 7.0)
    known = facts(total=total)
    done([dense.outer(Rows(0, 16, 4), 0, ("", 0), Rows(0, 0, 0), "total", 32)], 1, known)
    assert total.tolist() == [7.0] * 4


@pytest.mark.parametrize("reverse", [False, True])
def test_the_last_state_is_that_of_each_sequence(reverse):
    time = timetable(torch.tensor([3, 2, 2]), 7, 4)
    state, initial, out = noise(0, 7, 5).float(), noise(1, 4, 5).float(), torch.empty(4, 5)
    known = facts(state=state, initial=initial, out=out, sizes=time.sizes[1:], starts=time.starts[1:])
    work = last("out", lying("state", state), "initial", "starts", 4, reverse, 32)
    done([work], 2, known | {"steps": 3})
    places = [0, 1, 2] if reverse else [5, 6, 2]
    assert torch.equal(out, torch.stack([*state[places], initial[3]]))
