"""Runs the kernels of a cell whose states are arrays, on the CPU."""

from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.engines.arrays.compiled import CompiledArrays
from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.arrays.rows import Operands, Rows
from glassgate.engines.llvm_cpu.arrays.kernel import BLOCK, Kernels
from glassgate.engines.llvm_cpu.compile import Function
from glassgate.engines.llvm_cpu.pool import threads
from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.tasks import Launch

CHUNK_BYTES = 2**19
"""The memory for the replayed steps of a chunk, so that they stay in the second-level cache."""
FEWEST_STEPS, MOST_STEPS = 4, 64
"""The bounds of the number of steps in a chunk."""
SMALLEST_PART = 2**14
"""The numbers of all states and steps below which one thread is faster than two."""


class CPUArrays(CompiledArrays):
    """The kernels of a step for one type of number, on the CPU.

    Args:
        program: the passes of the step.
        dtype: torch.float32 or torch.float64.
        processor: the processor.
    """

    def __init__(self, program: ArrayProgram, dtype: torch.dtype, processor: Processor) -> None:
        super().__init__(program)
        self.kernels = Kernels(program, 32 if dtype == torch.float32 else 64, processor)
        slot_bytes = max(1, self.kernels.slot) * dtype.itemsize
        self.chunk = max(FEWEST_STEPS, min(MOST_STEPS, CHUNK_BYTES // slot_bytes - 1)) // BLOCK * BLOCK

    def run_forward(self, rows: Rows, operands: Operands, saved: Tensor, arguments: Sequence[Tensor]) -> None:
        """See `CompiledArrays`."""
        own: list[list[Tensor]] = [[]] * self._parts(rows)
        threads.run(self._launches(self.kernels.forward, rows, saved, operands, own, arguments))

    def run_backward(self, rows: Rows, operands: Operands, saved: Tensor, arguments: Sequence[Tensor]) -> None:
        """See `CompiledArrays`."""
        size = (self.chunk + 1) * self.kernels.slot
        own = [[operands.gates.new_empty(size)] for _ in range(self._parts(rows))]
        threads.run(self._launches(self.kernels.backward, rows, saved, operands, own, arguments))

    def _parts(self, rows: Rows) -> int:
        """The number of threads that divide the jobs."""
        work = self.jobs(rows) * len(rows.starts) * max(1, self.state_size)
        return min(torch.get_num_threads(), max(1, self.jobs(rows)), 1 + work // SMALLEST_PART)

    def launch(self, rows: Rows, operands: Operands, output: Tensor) -> Launch:
        """A launch that runs the forward pass on one thread, while all arguments exist.

        Args:
            rows: the rows.
            operands: the operands. A launch reads `gates` and `inputs`, and replaces the states in `initial`.
            output: (S, width) the memory of the output.
        """
        arguments = [output, *operands.initial, *operands.restart, *operands.parameters]
        return self._launches(self.kernels.forward, rows, output[:0], operands, [[]], arguments)[0]

    def _launches(
        self,
        function: Function,
        rows: Rows,
        saved: Tensor,
        operands: Operands,
        own: Sequence[Sequence[Tensor]],
        shared: Sequence[Tensor],
    ) -> list[Launch]:
        """The launches of a kernel. Each part of the jobs has its own tensors and those that all parts share."""
        jobs = self.jobs(rows)
        resets = 0 if rows.resets is None else rows.resets.data_ptr()
        address = saved.data_ptr() if saved.numel() else 0
        values = rows.starts.data_ptr(), rows.lengths.data_ptr(), int(rows.reverse), resets, jobs, self.chunk, address
        header = array("q", values)
        header.extend(map(Tensor.data_ptr, (operands.gates, operands.inputs, operands.noise)))
        addresses, parts = array("q", map(Tensor.data_ptr, shared)), len(own)
        launches = []
        for k, tensors in enumerate(own):
            part = array("q", (jobs * k // parts, jobs * (k + 1) // parts))
            arguments = header + array("q", map(Tensor.data_ptr, tensors)) + addresses + part
            launches.append(Launch(function, arguments))
        return launches
