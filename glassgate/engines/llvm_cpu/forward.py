"""The plan of a forward pass: sums of biases, the input GEMM, the loop over time, and the final states."""

from functools import lru_cache
from itertools import chain

from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu import small_tasks
from glassgate.engines.llvm_cpu.arguments import Argument, address, starts
from glassgate.engines.llvm_cpu.chunks import MAX_CHUNK_BYTES, Chunks
from glassgate.engines.llvm_cpu.gemm.products import RowVectors, multiply, round_rows
from glassgate.engines.llvm_cpu.loops.buffers import Kind, bias_buffer, weight_buffer
from glassgate.engines.llvm_cpu.loops.outside_loop import bias_sums
from glassgate.engines.llvm_cpu.loops.phase import MAX_GATES
from glassgate.engines.llvm_cpu.plan import KernelPlan
from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from glassgate.engines.llvm_cpu.tasks import Operand, ParallelTask
from glassgate.engines.plan import Plan


class ForwardPlan(KernelPlan):
    """The plan of the forward pass of one direction.

    Args:
        plan, sizes, save, all_states, rounds_output, few_rows: as in `KernelPlan`.
        processor: the result of `host()`. It serves only as a part of the cache key of `cached_forward_plan`.
    """

    def __init__(
        self,
        plan: Plan,
        sizes: KernelSizes,
        save: bool,
        all_states: bool,
        rounds_output: bool,
        few_rows: bool,
        processor: Processor,
    ) -> None:
        super().__init__(plan, sizes, False, all_states, save, rounds_output, few_rows)
        trace, bits = self.trace, sizes.bits
        if "bias_ih" in plan.weights:
            self._sum_biases()
        self._chunk_rows = 0
        if trace.ih and not sizes.has_few_inputs:
            input_products = self.buffers[Kind.INPUT]
            tasks, data = self._round_operand(self.row_vectors(self.buffers[Kind.DATA]), args.ROUNDED_INPUT)
            self.tasks.before[0] += tasks
            self.tasks.before.append([])
            weights_size = 0
            for k, first in enumerate(range(0, len(trace.ih), MAX_GATES)):
                gates = self.input_gates[first : first + MAX_GATES]
                weights, out = self.input_weights(gates, k), self.row_vectors(input_products, first, 1)
                self.tasks.before[-1].append(multiply(data, weights, len(gates), out, args.ROWS, bits))
                weights_size += weights.size
            if not save:
                self.memory.per_row[address(input_products)] = self._pitch(input_products)
            self._chunk_rows = self.max_chunk_rows(weights_size)
        returned_states = self.tensors.states[self.stored_states]
        if rounds_output:
            returned_states = args.ROUNDED_OUTPUT, *returned_states
        self.tensors.results = [
            *returned_states,
            *self._state_arguments(Kind.FINAL),
            *(self.tensors.kept if save else ()),
        ]
        for state, state_starts in zip(self.tensors.states, self._state_starts, strict=True):
            if state_starts in self.tables.double_buffers:
                assert state.buffer is not None
                self.memory.buffers[state] = 2 * sizes.N * state.buffer.width(sizes) * sizes.bytes
        of_state = self.buffers.of_state
        self.tasks.after = [
            [
                small_tasks.copy_final_states(
                    address(of_state(Kind.FINAL, name)),
                    self.row_vectors(of_state(Kind.STATE, name)),
                    address(of_state(Kind.INITIAL, name)),
                    starts(of_state(Kind.STATE, name)),
                    plan.reverse,
                    bits,
                )
                for name in self.cell.state
            ]
        ]
        self.check_arguments(*(() if save else self.tensors.kept))

    def _round_operand(self, rows: RowVectors, out: Argument) -> tuple[list[ParallelTask], RowVectors]:
        """Return the tasks that round rows for the input GEMM, if any, and the rows that the GEMM reads."""
        if not self.sizes.effective_input_arithmetic:
            return [], rows
        task, rounded_rows = round_rows(rows, out, args.ROWS, self.sizes.effective_input_arithmetic)
        self.memory.per_row[out] = rounded_rows.pitch
        return [task], rounded_rows

    @property
    def one_thread_tasks(self) -> list[ParallelTask]:
        if not self._chunk_rows:
            return super().one_thread_tasks
        dt = -1 if self.is_reversed else 1
        return [Chunks([*chain(*self.tasks.before)], self.loop, dt, self._chunk_rows, self.memory.per_row)]

    def buffered_rows(self, rows: int, threads: int) -> int:
        return rows if threads > 1 or not self._chunk_rows else min(rows, max(self._chunk_rows, self.sizes.N))

    def max_chunk_rows(self, weights_size: int) -> int:
        """Return the largest number of rows of a chunk, see `Chunks` and `MAX_CHUNK_BYTES`.

        Args:
            weights_size: the size of the packed input weights in bytes.
        """
        return max(MAX_CHUNK_BYTES, weights_size) // self._pitch(self.buffers[Kind.INPUT])

    def _sum_biases(self) -> None:
        """Add the tasks that sum the biases for the loop."""
        H, bytes_, zeros = self.sizes.H, self.sizes.bytes, self.zeros.data_ptr()
        for half, column, biases, gate_count in bias_sums(self.plan.equations, self.trace):
            buffer = bias_buffer(half, self.trace)
            self.memory.weights[address(buffer)] = buffer.width(self.sizes) * bytes_
            terms: list[Operand] = [
                (address(weight_buffer(self.cell, name)), gate * H * bytes_) for name, gate in biases
            ]
            first, second = [*terms, zeros][:2]
            out = address(buffer), column * H * bytes_
            self.tasks.packing.append(small_tasks.add(out, first, second, gate_count * H, self.sizes.bits))


cached_forward_plan = lru_cache(1024)(ForwardPlan)
