"""GEMMs over the rows of all steps, compared with torch in float64."""

import pytest
import torch

from glassgate.engines.llvm_cpu.arguments import SEQUENCES, STARTS, STEPS, integer
from glassgate.engines.llvm_cpu.arguments import SIZES as STEP_SIZES
from glassgate.engines.llvm_cpu.gemm import products
from glassgate.engines.llvm_cpu.gemm.pack import Matrix, pack, unpacked_matrix
from glassgate.engines.llvm_cpu.gemm.products import RowVectors
from glassgate.engines.llvm_cpu.loops.batch import batch_layout
from glassgate.engines.llvm_cpu.processor import Processor, host, pretend
from glassgate.engines.llvm_cpu.sizes import Arithmetic
from glassgate.engines.llvm_cpu.small_tasks import copy_final_states, fill_row_addresses
from tests.compare import noise
from tests.engines.llvm_cpu.test_bfloat16 import TILES

WIDTHS = (Processor(16, 16), Processor(16, 32), Processor(32, 16), Processor(64, 32))
PROCESSORS = [p for p in WIDTHS if p.width <= host().width]
ROUNDING = [Processor(32, 16, "emulated"), TILES, *([host()] if host().bfloat16 else [])]
SIZES = [(1, 1, 1), (7, 3, 5), (50, 16, 16), (300, 37, 65)]
"""The numbers of rows, of columns of the input and of units: multiples of a vector's lanes, and others."""
GATES = (2, 0, 1)


def addresses_of(**tensors):
    """The addresses of tensors, by the argument with the name of the tensor."""
    return {integer(name): tensor.data_ptr() for name, tensor in tensors.items()}


def run_tasks(tasks, parts, addresses):
    """Run each task, divided into parts."""
    for task in tasks:
        for k in range(parts):
            task.part(addresses, k=k, parts=parts).launch()


def row_vectors(name, matrix):
    return RowVectors(integer(name), matrix.stride(0) * matrix.element_size(), matrix.shape[1])


def memory_of(packed):
    return torch.empty(packed.size, dtype=torch.uint8)


def address_table(n):
    return torch.zeros(n, dtype=torch.int64)


def rows_of_gates(matrix, gates=GATES):
    return matrix.unflatten(0, (len(gates), -1))[list(gates)].flatten(0, 1)


def assert_near(actual, expected):
    largest = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual.double(), expected.double(), rtol=0, atol=1e-5 * largest)


def expected_product(a, b, arithmetic):
    """The product in float64: of the matrices, or of their bfloat16 parts in a product with this arithmetic."""
    high, low = zip(*[(v.bfloat16().double(), (v - v.bfloat16()).bfloat16().double()) for v in (a, b)], strict=True)
    if arithmetic is Arithmetic.FULL:
        return a.double() @ b.double()
    return high[0] @ high[1] + (high[0] @ low[1] + low[0] @ high[1] if arithmetic is Arithmetic.SPLIT_BFLOAT16 else 0)


def check_products(processor, rows, columns, units, dtype, arithmetic=Arithmetic.FULL):
    """Check the input GEMM, the GEMM for the gradient of the input, and the weight gradient GEMM."""
    x, weight, d = (
        noise(k, *shape).to(dtype)
        for k, shape in enumerate([(rows, columns), (3 * units, columns), (rows, 3 * units + 5)])
    )
    d = d[:, : 3 * units]
    out, d_x = x.new_empty(rows, 3 * units), noise(3, rows, columns).to(dtype)
    before = d_x.clone()
    d_weight, total_1, total_2 = x.new_empty(3 * units, columns), x.new_empty(3 * units), x.new_empty(3 * units)
    bits = x.element_size() * 8
    matrix = Matrix(integer("weight"), 3, 3 * units, columns, bits)
    with pretend(processor):
        packed = pack(integer("packed"), matrix, GATES, 1, transposed=False, arithmetic=arithmetic)
        packed_transposed = pack(integer("packed_transposed"), matrix, GATES, 1, transposed=True, arithmetic=arithmetic)
        buffers = {"packed": memory_of(packed), "packed_transposed": memory_of(packed_transposed)}
        buffers |= {"x_16": torch.empty(len(x), 4 * columns + 64), "d_16": torch.empty(len(x), 12 * units + 64)}
        buffers["table"] = address_table(len(x))
        results = {"out": out, "d_x": d_x, "d_weight": d_weight, "total_1": total_1, "total_2": total_2}
        addresses = addresses_of(x=x, weight=weight, d=d, **results, **buffers)
        run_tasks(
            [
                *packed.tasks,
                *packed_transposed.tasks,
                fill_row_addresses(integer("table"), row_vectors("x", x), len(x)),
            ],
            2,
            addresses,
        )
        x_rows, d_rows = row_vectors("x", x), row_vectors("d", d)
        if arithmetic:
            round_x, x_rows = products.round_rows(x_rows, integer("x_16"), len(x), arithmetic)
            round_d, d_rows = products.round_rows(d_rows, integer("d_16"), len(x), arithmetic)
            run_tasks([round_x, round_d], 2, addresses)
        first_gate, right = RowVectors(integer("out"), out.stride(0) * bits // 8, units), (integer("table"), 0)
        run_tasks([products.multiply(x_rows, packed, 3, first_gate, len(x), bits)], 2, addresses)
        run_tasks(
            [products.multiply(d_rows, packed_transposed, 1, row_vectors("d_x", d_x), len(x), bits, added=True)],
            2,
            addresses,
        )
        outputs = row_vectors("d_weight", d_weight), [integer("total_1"), integer("total_2")], bits
        run_tasks([products.outer(d_rows, len(x), right, *outputs, arithmetic=arithmetic)], 2, addresses)
    selected = rows_of_gates(weight)
    assert_near(total_1, expected_product(torch.ones(1, rows), d, arithmetic)[0])
    assert torch.equal(total_1, total_2)
    assert_near(out, expected_product(x, selected.t(), arithmetic))
    assert_near(d_x, before.double() + expected_product(d, selected, arithmetic))
    assert_near(d_weight, expected_product(d.t(), x, arithmetic))


@pytest.mark.parametrize("processor", PROCESSORS, ids=str)
@pytest.mark.parametrize(("rows", "columns", "units"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_float32_and_float64(processor, rows, columns, units, dtype):
    check_products(processor, rows, columns, units, dtype)


@pytest.mark.parametrize(
    ("processor", "arithmetic"),
    [*((p, Arithmetic.BFLOAT16) for p in ROUNDING), (TILES, Arithmetic.SPLIT_BFLOAT16)],
    ids=str,
)
@pytest.mark.parametrize(("rows", "columns", "units"), SIZES)
def test_products_of_numbers_rounded_to_bfloat16(processor, arithmetic, rows, columns, units):
    check_products(processor, rows, columns, units, torch.float32, arithmetic)


@pytest.mark.parametrize("processor", PROCESSORS, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 13])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_with_unpacked_weights(processor, rows, dtype):
    for columns, units in ((1, 16), (16, 32), (37, 64), (5, 3), (20, 41)):
        x, weight = noise(0, rows, columns).to(dtype), noise(1, 3 * units, columns).to(dtype)
        outs, bits = x.new_empty(2, rows, 3 * units), 8 * x.element_size()
        matrix = Matrix(integer("weight"), 3, 3 * units, columns, bits)
        with pretend(processor):
            first_gate = RowVectors(integer("out"), 3 * units * bits // 8, units)
            product = products.multiply(
                row_vectors("x", x), unpacked_matrix(matrix, GATES, transposed=False), 3, first_gate, rows, bits
            )
            for parts, out in zip((1, min(rows, 3)), outs, strict=True):
                run_tasks([product], parts, addresses_of(x=x, weight=weight, out=out))
        assert_near(outs[0], x.double() @ rows_of_gates(weight).double().t())
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
            packed = pack(integer("packed"), matrix, gates, 1, transposed=True)
            for weights, parts in ((packed, 1), (unpacked_matrix(matrix, gates, transposed=True), min(rows, 3))):
                d_x, buffer = noise(2, rows, columns).to(dtype), memory_of(packed)
                addresses = addresses_of(d=d, weight=weight, d_x=d_x, packed=buffer)
                run_tasks(weights.tasks, 1, addresses)
                out = row_vectors("d_x", d_x)
                run_tasks(
                    [products.multiply(row_vectors("d", d), weights, 1, out, rows, matrix.bits, added=True)],
                    parts,
                    addresses,
                )
                results.append(d_x)
        assert_near(results[1], noise(2, rows, columns).double() + d.double() @ weight[units:].double())
        assert torch.equal(*results)


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_results_do_not_depend_on_the_division_of_tasks(parts):
    x, d = noise(0, 300, 37).float(), noise(1, 300, 50).float()
    results = []
    for count in (1, parts):
        d_weight, total, table = torch.empty(50, 37), torch.empty(50), address_table(300)
        addresses = addresses_of(x=x, d=d, table=table, d_weight=d_weight, total=total)
        run_tasks([fill_row_addresses(integer("table"), row_vectors("x", x), 300)], 1, addresses)
        out = row_vectors("d_weight", d_weight)
        task = products.outer(row_vectors("d", d), 300, (integer("table"), 0), out, [integer("total")], 32)
        run_tasks([task], count, addresses)
        results.append((d_weight, total))
    assert all(map(torch.equal, *results))


def test_outer_without_rows_and_without_result_leaves_the_total_unchanged():
    total = torch.full((4,), 7.0)
    addresses = addresses_of(total=total)
    run_tasks(
        [products.outer(RowVectors(0, 16, 4), 0, (0, 0), RowVectors(0, 0, 0), [integer("total")], 32)], 1, addresses
    )
    assert total.tolist() == [7.0] * 4


@pytest.mark.parametrize("reverse", [False, True])
def test_final_states_are_those_after_the_last_step_of_each_sequence(reverse):
    layout = batch_layout(torch.tensor([3, 2, 2]), 7, 4)
    state, initial, out = noise(0, 7, 5).float(), noise(1, 4, 5).float(), torch.empty(4, 5)
    addresses = addresses_of(state=state, initial=initial, out=out)
    addresses |= {STEP_SIZES: layout.sizes[1:].data_ptr(), STARTS: layout.starts[1:].data_ptr(), STEPS: 3, SEQUENCES: 4}
    task = copy_final_states(integer("out"), row_vectors("state", state), integer("initial"), STARTS, reverse, 32)
    run_tasks([task], 2, addresses)
    last_rows = [0, 1, 2] if reverse else [5, 6, 2]
    assert torch.equal(out, torch.stack([*state[last_rows], initial[3]])), "the last sequence is empty"
