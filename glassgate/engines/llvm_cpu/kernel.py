"""The kernels of a cell. They are printed and compiled at their first use."""

from typing import Any, NamedTuple

from glassgate.engines.llvm_cpu.compile import Function, compile_kernel
from glassgate.engines.llvm_cpu.emit import PrintedKernel, emit
from glassgate.engines.llvm_cpu.loops.phases import Step
from glassgate.engines.llvm_cpu.processor import Processor, host
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.trace import Trace


class CompiledKernel(NamedTuple):
    """The forward or backward loop of a cell, as a step, as a printed kernel and as machine code."""

    step: Step
    kernel: PrintedKernel
    function: Function


_compiled: dict[Any, CompiledKernel] = {}


def kernel_of(
    equations: Equations, trace: Trace, bits: int, is_backward: bool, processor: Processor, input_size: int = 0
) -> CompiledKernel:
    """Return the compiled forward or backward kernel of a cell; for `input_size` see `emit`."""
    key = equations, trace, bits, is_backward, processor, input_size
    if key not in _compiled:
        step = Step(equations, trace, is_backward)
        kernel = _emit("Step", step, processor, input_size)
        name = "backward" if is_backward else "forward"
        _compiled[key] = CompiledKernel(step, kernel, compile_kernel(kernel.text, name, bits, processor))
    return _compiled[key]


def print_kernel(title: str, equations: Equations, trace: Trace, is_backward: bool) -> PrintedKernel:
    """Return the kernel of a cell as text. The title is the name of the cell."""
    return _emit(title, Step(equations, trace, is_backward), host().full_precision, 0)


def _emit(title: str, step: Step, processor: Processor, input_size: int) -> PrintedKernel:
    name = "backward" if step.backward else "forward"
    title = f"{title}, {name} through time: one direction of a layer, some sequences."
    return emit(step, title, processor.rounds_operands, bool(processor.bfloat16), input_size)
