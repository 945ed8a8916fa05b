"""Products of whole sequences, against torch's in float64."""

import pytest
import torch

from glassgate.engines.llvm_cpu.arguments import SIZES as STEP_SIZES
from glassgate.engines.llvm_cpu.arguments import STARTS, STEPS, integer
from glassgate.engines.llvm_cpu.gemm import products
from glassgate.engines.llvm_cpu.gemm.pack import Matrix, pack, unpacked_matrix
from glassgate.engines.llvm_cpu.gemm.products import RowVectors
from glassgate.engines.llvm_cpu.loops.batch import batch_layout
from glassgate.engines.llvm_cpu.processor import Processor, host, pretend
from glassgate.engines.llvm_cpu.small_tasks import copy_final_states, fill_row_addresses
from tests.compare import noise
from tests.engines.llvm_cpu.test_bfloat16 import TILES

PROCESSORS = [p for p in (Processor(16, 16), Processor(32, 16), Processor(64, 32)) if p.width <= host().width]
ROUNDING = [Processor(32, 16, "emulated"), TILES, *([host()] if host().bfloat16 else [])]
SIZES = [(1, 1, 1), (7, 3, 5), (50, 16, 16), (300, 37, 65)]
"""Rows, columns of the input, units; none and all of them whole vectors."""
GATES = (2, 0, 1)


def bound(**tensors):
    """Where tensors are, by name."""
    return {integer(name): tensor.data_ptr() for name, tensor in tensors.items()}


def done(tasks, parts, known):
    for task in tasks:
        for k in range(parts):
            task.part(known, k=k, parts=parts).launch()


def stored(name, matrix):
    return RowVectors(integer(name), matrix.stride(0) * matrix.element_size(), matrix.shape[1])


def memory(packed):
    return torch.empty(packed.size, dtype=torch.uint8)


def table(n):
    return torch.zeros(n, dtype=torch.int64)


def selected(matrix, gates=GATES):
    return matrix.unflatten(0, (len(gates), -1))[list(gates)].flatten(0, 1)


def close(ours, wanted):
    torch.testing.assert_close(ours.double(), wanted.double(), rtol=0, atol=1e-5 * max(1.0, wanted.abs().max().item()))


def product(a, b, terms):
    """That of the matrices, or of rounded ones, or three of those and of what rounding leaves, rounded; in float64."""
    high, low = zip(*[(v.bfloat16().double(), (v - v.bfloat16()).bfloat16().double()) for v in (a, b)], strict=True)
    if terms == 0:
        return a.double() @ b.double()
    return high[0] @ high[1] + (high[0] @ low[1] + low[0] @ high[1] if terms == 3 else 0)


def check_products(processor, rows, columns, units, dtype, terms=0):
    """Each product of whole sequences; with `terms` as products of rounded numbers."""
    x, weight, d = (
        noise(k, *shape).to(dtype)
        for k, shape in enumerate([(rows, columns), (3 * units, columns), (rows, 3 * units + 5)])
    )
    d = d[:, : 3 * units]
    out, d_x = x.new_empty(rows, 3 * units), noise(3, rows, columns).to(dtype)
    before = d_x.clone()
    outer, total, also = x.new_empty(3 * units, columns), x.new_empty(3 * units), x.new_empty(3 * units)
    bits = x.element_size() * 8
    matrix = Matrix(integer("weight"), 3, 3 * units, columns, bits)
    with pretend(processor):
        ahead = pack(integer("ahead"), matrix, GATES, 1, transposed=False, terms=terms)
        back = pack(integer("back"), matrix, GATES, 1, transposed=True, terms=terms)
        places = {"ahead": memory(ahead), "back": memory(back), "table": table(len(x))}
        places |= {"x_16": torch.empty(len(x), 4 * columns + 64), "d_16": torch.empty(len(x), 12 * units + 64)}
        known = bound(x=x, weight=weight, d=d, out=out, d_x=d_x, outer=outer, total=total, also=also, **places)
        done([*ahead.tasks, *back.tasks, fill_row_addresses(integer("table"), stored("x", x), len(x))], 2, known)
        x_rows, d_rows = stored("x", x), stored("d", d)
        if terms:
            round_x, x_rows = products.round_rows(x_rows, integer("x_16"), len(x), terms)
            round_d, d_rows = products.round_rows(d_rows, integer("d_16"), len(x), terms)
            done([round_x, round_d], 2, known)
        a_gate, right = RowVectors(integer("out"), out.stride(0) * bits // 8, units), (integer("table"), 0)
        done([products.multiply(x_rows, ahead, 3, a_gate, len(x), bits)], 2, known)
        done([products.multiply(d_rows, back, 1, stored("d_x", d_x), len(x), bits, added=True)], 2, known)
        sums = stored("outer", outer), [integer("total"), integer("also")], bits
        done([products.outer(d_rows, len(x), right, *sums, terms=terms)], 2, known)
    chosen = selected(weight)
    close(total, product(torch.ones(1, rows), d, terms)[0])
    assert torch.equal(total, also)
    close(out, product(x, chosen.t(), terms))
    close(d_x, before.double() + product(d, chosen, terms))
    close(outer, product(d.t(), x, terms))


@pytest.mark.parametrize("processor", PROCESSORS, ids=str)
@pytest.mark.parametrize(("rows", "columns", "units"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products(processor, rows, columns, units, dtype):
    check_products(processor, rows, columns, units, dtype)


@pytest.mark.parametrize(("processor", "terms"), [*((p, 1) for p in ROUNDING), (TILES, 3)], ids=str)
@pytest.mark.parametrize(("rows", "columns", "units"), SIZES)
def test_products_of_rounded_numbers(processor, terms, rows, columns, units):
    check_products(processor, rows, columns, units, torch.float32, terms)


@pytest.mark.parametrize("processor", PROCESSORS, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 13])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_with_unpacked_weights(processor, rows, dtype):
    for columns, units in ((1, 16), (16, 32), (37, 64), (5, 3), (20, 41)):
        x, weight = noise(0, rows, columns).to(dtype), noise(1, 3 * units, columns).to(dtype)
        outs, bits = x.new_empty(2, rows, 3 * units), 8 * x.element_size()
        matrix = Matrix(integer("weight"), 3, 3 * units, columns, bits)
        with pretend(processor):
            a_gate = RowVectors(integer("out"), 3 * units * bits // 8, units)
            product = products.multiply(
                stored("x", x), unpacked_matrix(matrix, GATES, transposed=False), 3, a_gate, rows, bits
            )
            for parts, out in zip((1, min(rows, 3)), outs, strict=True):
                done([product], parts, bound(x=x, weight=weight, out=out))
        close(outs[0], x.double() @ selected(weight).double().t())
        assert torch.equal(*outs)


@pytest.mark.parametrize("processor", PROCESSORS, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_transposed_products_with_unpacked_weights(processor, rows, dtype):
    gates = (1, 2)
    for columns, units in ((1, 16), (16, 32), (37, 64), (5, 3), (20, 41), (300, 2)):
        d, weight = noise(0, rows, 2 * units).to(dtype), noise(1, 3 * units, columns).to(dtype)
        matrix, results = Matrix(integer("weight"), 3, 3 * units, columns, 8 * d.element_size()), []
        with pretend(processor):
            packed = pack(integer("packed"), matrix, gates, 1, transposed=True, terms=0)
            for weights, parts in ((packed, 1), (unpacked_matrix(matrix, gates, transposed=True), min(rows, 3))):
                d_x, buffer = noise(2, rows, columns).to(dtype), memory(packed)
                known = bound(d=d, weight=weight, d_x=d_x, packed=buffer)
                done(weights.tasks, 1, known)
                out = stored("d_x", d_x)
                done([products.multiply(stored("d", d), weights, 1, out, rows, matrix.bits, added=True)], parts, known)
                results.append(d_x)
        close(results[1], noise(2, rows, columns).double() + d.double() @ weight[units:].double())
        assert torch.equal(*results)


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_bits_do_not_depend_on_the_division_of_tasks(parts):
    x, d = noise(0, 300, 37).float(), noise(1, 300, 50).float()
    results = []
    for k in (1, parts):
        outer, total, places = torch.empty(50, 37), torch.empty(50), table(300)
        known = bound(x=x, d=d, table=places, outer=outer, total=total)
        totals = [integer("total")]
        done([fill_row_addresses(integer("table"), stored("x", x), 300)], 1, known)
        done(
            [products.outer(stored("d", d), 300, (integer("table"), 0), stored("outer", outer), totals, 32)],
            k,
            known,
        )
        results.append((outer, total))
    assert all(map(torch.equal, *results))


def test_a_sum_of_no_rows_alone_is_asked_for_nothing():
    total = torch.full((4,), 7.0)
    known = bound(total=total)
    done([products.outer(RowVectors(0, 16, 4), 0, (0, 0), RowVectors(0, 0, 0), [integer("total")], 32)], 1, known)
    assert total.tolist() == [7.0] * 4


@pytest.mark.parametrize("reverse", [False, True])
def test_the_last_state_is_that_of_each_sequence(reverse):
    time = batch_layout(torch.tensor([3, 2, 2]), 7, 4)
    state, initial, out = noise(0, 7, 5).float(), noise(1, 4, 5).float(), torch.empty(4, 5)
    known = bound(state=state, initial=initial, out=out)
    known |= {STEP_SIZES: time.sizes[1:].data_ptr(), STARTS: time.starts[1:].data_ptr(), STEPS: 3}
    task = copy_final_states(integer("out"), stored("state", state), integer("initial"), STARTS, 4, reverse, 32)
    done([task], 2, known)
    places = [0, 1, 2] if reverse else [5, 6, 2]
    assert torch.equal(out, torch.stack([*state[places], initial[3]]))
