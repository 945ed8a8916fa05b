"""The text of the kernels that are generated for a cell."""

from glassgate.cell import Cell
from glassgate.cell_shapes import example_sizes
from glassgate.engines.llvm_cpu.costs import COSTS
from glassgate.engines.symbolic.trace import build_trace
from glassgate.engines.traced_cells import current_array_step, current_equations
from glassgate.shapes import check_choice


def source(cell: Cell, engine: str = "cpu", *, projected: bool = False) -> str:
    """The source code of the kernels that are generated for a cell, forward and backward.

    Args:
        cell: the cell.
        engine: "cpu" or "triton". The Triton kernels are those for training without lengths and resets.
        projected: whether the output goes through `weight_hr`.

    Returns:
        The text of Python functions. Kernels of both engines are written in Python. Those of a cell that declares axes
        are for a layer of a small size.

    Raises:
        TypeError: the cell uses an operation that the kernels do not support.

    Example:
        >>> import glassgate as gg
        >>> "c = f * c_prev + i * g" in gg.source(gg.cells.LSTM())
        True
    """
    if not isinstance(cell, Cell):
        raise TypeError(f"source: cell must be an instance of glassgate.Cell, got {cell!r}")
    check_choice("source", "engine", engine, ("cpu", "triton"))
    if engine == "triton" and cell.declaration is None:
        from glassgate.engines.triton_gpu.layer import source_of

        return source_of(current_equations(cell, projected))
    if cell.declaration is not None:
        return _of_arrays(cell, engine)
    from glassgate.engines.llvm_cpu.kernel import print_kernel

    equations = current_equations(cell, projected)
    trace, title = build_trace(equations, COSTS), type(cell).__name__
    return "\n\n".join(print_kernel(title, equations, trace, is_backward).text for is_backward in (False, True))


def _of_arrays(cell: Cell, engine: str) -> str:
    """The kernels of a cell that declares axes."""
    from glassgate.engines.arrays.program import ArrayProgram
    from glassgate.engines.llvm_cpu.arrays.kernel import print_kernels
    from glassgate.engines.llvm_cpu.processor import host

    program = ArrayProgram(current_array_step(cell, *example_sizes(cell)))
    if engine == "triton":
        from glassgate.engines.triton_gpu.arrays.engine import GPUArrays

        return GPUArrays(program).source
    kernels = print_kernels(program, 32, host().full_precision)
    return "\n\n".join([kernels.forward, kernels.backward])
