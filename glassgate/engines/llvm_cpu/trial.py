"""A trial of the AMX instructions: small products on tile registers, compared with those of torch.

`amx.py` runs this module in a separate process. If a product is wrong, the process ends with an error message. If an
instruction is illegal, the operating system ends the process.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.engines.llvm_cpu.amx import with_amx
from glassgate.engines.llvm_cpu.arguments import Argument, integer
from glassgate.engines.llvm_cpu.gemm.pack import Matrix, pack
from glassgate.engines.llvm_cpu.gemm.products import RowVectors, multiply, outer, round_rows
from glassgate.engines.llvm_cpu.processor import host, pretend
from glassgate.engines.llvm_cpu.sizes import Arithmetic
from glassgate.engines.llvm_cpu.small_tasks import fill_row_addresses
from glassgate.engines.llvm_cpu.tasks import ParallelTask
from glassgate.system import SYSTEM

ROWS, COLUMNS, UNITS, GATES = 37, 70, 21, 3
"""No size is a multiple of the size of a tile register, so the trial covers all shapes and remainders of products."""
TOLERANCE = 1e-5
"""The largest permitted error of sums in float32 compared with float64, relative to the largest value."""


def find_wrong_products() -> list[str]:
    """Return the name and the error of each wrong product."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    x, weight, d = random(ROWS, COLUMNS), random(GATES * UNITS, COLUMNS), random(ROWS, GATES * UNITS)
    matrix = Matrix(integer("weight"), GATES, GATES * UNITS, COLUMNS, 32)
    packed = pack(integer("packed"), matrix, range(GATES), 1, transposed=False, arithmetic=Arithmetic.BFLOAT16)
    transposed = pack(integer("transposed"), matrix, range(GATES), 1, transposed=True, arithmetic=Arithmetic.BFLOAT16)
    round_x, x_16 = round_rows(_rows("x", x), integer("x_16"), ROWS, arithmetic=Arithmetic.BFLOAT16)
    round_d, d_16 = round_rows(_rows("d", d), integer("d_16"), ROWS, arithmetic=Arithmetic.BFLOAT16)
    results = {"input": x.new_empty(ROWS, GATES * UNITS), "gradient": torch.empty_like(x), "weights": weight.clone()}
    total = x.new_empty(GATES * UNITS)
    out = [_rows(name, result) for name, result in results.items()]
    _run(
        [
            *packed.tasks,
            *transposed.tasks,
            round_x,
            round_d,
            fill_row_addresses(integer("table"), _rows("x", x), ROWS),
            multiply(x_16, packed, GATES, out[0]._replace(width=UNITS), ROWS, 32),
            multiply(d_16, transposed, 1, out[1], ROWS, 32),
            outer(d_16, ROWS, (integer("table"), 0), out[2], [integer("total")], 32, arithmetic=Arithmetic.BFLOAT16),
        ],
        x=x,
        weight=weight,
        d=d,
        packed=torch.empty(packed.size, dtype=torch.uint8),
        transposed=torch.empty(transposed.size, dtype=torch.uint8),
        x_16=torch.empty(ROWS * x_16.pitch, dtype=torch.uint8),
        d_16=torch.empty(ROWS * d_16.pitch, dtype=torch.uint8),
        table=torch.empty(ROWS, dtype=torch.int64),
        total=total,
        **results,
    )
    x, weight, d = (v.bfloat16().double() for v in (x, weight, d))
    expected = {"input": x @ weight.t(), "gradient": d @ weight, "weights": d.t() @ x}
    errors = {name: float((results[name] - true).abs().max() / true.abs().max()) for name, true in expected.items()}
    return [f"product of {name}: error {error:.1g}" for name, error in errors.items() if not error < TOLERANCE]


def _rows(name: str, matrix: Tensor) -> RowVectors:
    return RowVectors(integer(name), matrix.stride(0) * matrix.element_size(), matrix.shape[1])


def _run(tasks: Sequence[ParallelTask], **memory: Tensor) -> None:
    bindings: dict[Argument, int] = {integer(name): tensor.data_ptr() for name, tensor in memory.items()}
    for task in tasks:
        task.whole(bindings)()


if __name__ == "__main__":
    SYSTEM.permit_tile_registers()
    with pretend(with_amx(host())):
        if wrong := find_wrong_products():
            raise SystemExit("; ".join(wrong))
