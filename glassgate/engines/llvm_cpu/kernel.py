"""The kernels of a cell. They are printed and compiled at their first use."""

from typing import Any, NamedTuple

from glassgate.cell import Cell
from glassgate.engines.llvm_cpu.compile import Function, compile_kernel
from glassgate.engines.llvm_cpu.emit import PrintedKernel, emit
from glassgate.engines.llvm_cpu.loops.program import Program, lower
from glassgate.engines.llvm_cpu.processor import Processor, host
from glassgate.engines.symbolic.trace import Trace


class CompiledKernel(NamedTuple):
    """The forward or backward loop of a cell, as a program, as a printed kernel and as machine code."""

    program: Program
    kernel: PrintedKernel
    function: Function


_compiled: dict[Any, CompiledKernel] = {}


def kernel_of(
    cell: Cell, trace: Trace, bits: int, is_backward: bool, processor: Processor, input_size: int = 0
) -> CompiledKernel:
    """Return the compiled forward or backward kernel of a cell; for `input_size` see `emit`."""
    key = trace, bits, is_backward, cell.heads, processor, input_size
    if key not in _compiled:
        program = lower(cell, trace, is_backward)
        kernel = _emit(cell, program, processor, input_size)
        name = "backward" if is_backward else "forward"
        _compiled[key] = CompiledKernel(program, kernel, compile_kernel(kernel.text, name, bits, processor))
    return _compiled[key]


def print_kernel(cell: Cell, trace: Trace, is_backward: bool) -> PrintedKernel:
    """Return the kernel of a cell as text."""
    return _emit(cell, lower(cell, trace, is_backward), host().full_precision, 0)


def _emit(cell: Cell, program: Program, processor: Processor, input_size: int) -> PrintedKernel:
    name = "backward" if program.backward else "forward"
    title = f"{type(cell).__name__}, {name} through time: one direction of a layer, some sequences."
    return emit(program, title, processor.rounds_operands, bool(processor.bfloat16), input_size)
