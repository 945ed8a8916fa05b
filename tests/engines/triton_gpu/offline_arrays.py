"""Compiles kernels of cells that declare axes for GPUs that may be absent, and prints their registers and memory.

`python -m tests.engines.triton_gpu.offline_arrays CHIP NAME ...`, in a process that does not run Triton's interpreter.
"""

import sys
from collections.abc import Iterator

import glassgate as gg
from glassgate.cell_shapes import example_sizes
from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.traced_cells import current_array_step
from glassgate.engines.triton_gpu.arrays.engine import GPUArrays, warps
from glassgate.engines.triton_gpu.arrays.kernel import CONSTANTS, NUMBERS, TABLES
from glassgate.engines.triton_gpu.launch import ALL_REGISTERS, compile_module
from tests.engines.llvm_cpu.test_arrays import STRUCTURED
from tests.engines.test_arrays import STEPS, make_cell
from tests.engines.triton_gpu.offline import compile_function, resources

TYPES = dict(zip((f"{table}_ptr" for table in TABLES), ("*i64", "*i64", "*u8"), strict=True))


def compiled(name: str, chip: int) -> Iterator[tuple[str, int, int, int]]:
    """Compile the kernels of a cell or a step.

    Yields:
        the name of the kernel, its registers, the bytes of spilled registers, and of shared memory.
    """
    if name in STEPS:
        cell, sizes = make_cell(STEPS[name]), (5, 8)
    elif name in STRUCTURED:
        cell = getattr(gg.cells, name)()
        sizes = example_sizes(cell)
    else:
        cell, sizes = gg.cells.MATRIX_MEMORIES[name](4, 64), (256, 256)
    arrays = GPUArrays(ArrayProgram(current_array_step(cell, *sizes)))
    for kernel, text in (("forward", arrays.forward_text), ("backward", arrays.backward_text)):
        function = compile_module(arrays.source, False)[kernel]
        signature = {p: TYPES.get(p, "*fp32" if p.endswith("_ptr") else "i32") for p in function.arg_names}
        signature |= dict.fromkeys(CONSTANTS, "constexpr")
        constants = dict.fromkeys(CONSTANTS, True)
        options = {"num_warps": warps(text.largest)}
        made, log = compile_function(function, signature, constants, NUMBERS, chip, options)
        if resources(log)[1]:
            made, log = compile_function(function, signature, constants, NUMBERS, chip, options | ALL_REGISTERS)
        yield kernel, *resources(log), made.metadata.shared


if __name__ == "__main__":
    for name in sys.argv[2:]:
        for row in compiled(name, int(sys.argv[1])):
            print(f"| {name} | {' | '.join(map(str, row))} |", flush=True)
