"""The kernels of a cell, printed and compiled when first asked for."""

from typing import Any, NamedTuple

from glassgate.cell import Cell
from glassgate.engines.numba_cpu.compile import Function, compiled
from glassgate.engines.numba_cpu.printer import Kernel, print_kernel
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.stages import Stages
from glassgate.engines.symbolic.trace import Trace


class Compiled(NamedTuple):
    """A printed kernel and its machine code."""

    kernel: Kernel
    function: Function


_compiled: dict[Any, Compiled] = {}


def kernel_of(cell: Cell, trace: Trace, bits: int, is_backward: bool) -> Compiled:
    """The kernel of a cell, compiled when it is first asked for."""
    processor = host()
    key = trace, bits, is_backward, cell.heads, processor
    if key not in _compiled:
        kernel = printed(cell, trace, is_backward)
        name = "backward" if is_backward else "forward"
        _compiled[key] = Compiled(kernel, compiled(kernel.text, name, bits, processor))
    return _compiled[key]


def printed(cell: Cell, trace: Trace, is_backward: bool) -> Kernel:
    """The kernel of a cell as text."""
    name = "backward" if is_backward else "forward"
    title = f"{type(cell).__name__}, {name} through time: one direction of a layer, the rows `first` to `last`."
    return print_kernel(Stages(trace, is_backward, cell.heads), title, cell.state)
