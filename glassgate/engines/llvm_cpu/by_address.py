"""Runs the forward pass of a layer on memory; see `backend.PreparedCalls.by_address`."""

from array import array
from collections.abc import Callable, Sequence
from operator import call, itemgetter

from torch import Tensor

from glassgate.engines.contract import Recording
from glassgate.engines.llvm_cpu.bound import Template
from glassgate.engines.llvm_cpu.executable import Executable
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.llvm_cpu.passes import ForwardPass
from glassgate.engines.llvm_cpu.workspace import borrow, kept
from glassgate.engines.memory import Matrices, MatrixBlock


def run_by_address(
    forward: ForwardPass,
    layout: BatchLayout,
    packed: Sequence[Tensor] | None,
    prepared: Executable | Template | None,
    new_visible: Sequence[Callable[[], Tensor]],
    blocks: Sequence[MatrixBlock],
    returned: Sequence[int],
) -> Callable[..., Sequence[Tensor]]:
    """Return a function that runs a forward pass.

    Args:
        forward: the pass.
        layout, packed, prepared: as in `LayerPass.run`.
        new_visible: allocate the visible states of all directions.
        blocks: the recorded values of each direction; empty if gates are not recorded.
        returned: the indices of the visible states and then of the final states among the results of the pass.
    """
    # The function is a closure with few lookups, because it takes as long as the kernels of a short call.
    in_kernel_order: Callable[[Sequence[int]], Sequence[int]] | None = None
    if [*returned] != sorted(returned):
        in_kernel_order = itemgetter(*[returned.index(k) for k in sorted(returned)])
    is_template = isinstance(prepared, Template)
    if isinstance(prepared, Template):
        function, fixed_values, workspace, weights, _, size, _ = prepared
        run_function = function.run
    else:
        executable = prepared

    def run(
        data: int, operands: Sequence[int], final: Sequence[int], resets: int, recordings: Sequence[Recording]
    ) -> Sequence[Tensor]:
        visible = [*map(call, new_visible)]
        results = [*map(Tensor.data_ptr, visible), *final]
        if in_kernel_order is not None:
            results = [*in_kernel_order(results)]
        if recordings:
            for recording, block in zip(recordings, blocks, strict=True):
                recording.values = matrices = Matrices(block)
                results += matrices.addresses()
        addresses = resets, data, *operands, *results
        if not is_template:
            (executable or forward.executable(layout)).run(layout, addresses, packed)
            return visible
        values = fixed_values + array("q", addresses)
        if size <= kept.size:
            start = kept.start
        else:
            start, _memory = borrow(size)
        values[workspace] = start
        for index, offset in weights:
            values[index] = start + offset
        run_function(values.buffer_info()[0])
        return visible

    return run
