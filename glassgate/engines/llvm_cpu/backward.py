"""The plan of a backward pass: the loop over time, then the GEMMs for the gradients of weights, biases and input."""

from functools import lru_cache
from typing import NamedTuple

from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu import small_tasks
from glassgate.engines.llvm_cpu.arguments import address
from glassgate.engines.llvm_cpu.gemm.products import RowVectors, multiply, outer
from glassgate.engines.llvm_cpu.loops.buffers import Kind, weight_buffer
from glassgate.engines.llvm_cpu.loops.memory import StateBefore
from glassgate.engines.llvm_cpu.loops.outside_loop import KindColumn, WeightGradient, after_loop
from glassgate.engines.llvm_cpu.plan import KernelPlan
from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from glassgate.engines.llvm_cpu.tasks import Operand
from glassgate.engines.plan import Plan


class RequestedGradients(NamedTuple):
    """The gradients of parameters and input that a call requests. The caller allocates their memory.

    Attributes:
        weights: the names of the parameters.
        data: whether the gradient of the input is requested.
        added: whether the gradient of the input is added to its memory, which already contains the gradient from
            another direction.
    """

    weights: tuple[str, ...]
    data: bool
    added: bool


class BackwardPlan(KernelPlan):
    """The plan of the backward pass of one direction.

    Args:
        plan, sizes, few_rows: as in `KernelPlan`.
        requested: the requested gradients.
        processor: as in `ForwardPlan`.

    Attributes:
        fully_written: the parameters whose gradient is written for every gate. The memory of other gradients must be
            zero before the pass.
        d_weights: the arguments for the gradients of parameters, by name.
        d_states: the buffers with the gradients of the returned states, which the caller passes.
        d_data: the argument for the gradient of the input.
        saved: the arguments for the tensors of the forward pass: states, and values kept for the backward pass.
        recorded_widths: the widths of the recorded gradients, by the names of gates and new states. With
            `Trace.records_factors`, the key "d_pre" names the gradients of all pre-activations.
    """

    def __init__(
        self, plan: Plan, sizes: KernelSizes, requested: RequestedGradients, few_rows: bool, processor: Processor
    ) -> None:
        super().__init__(plan, sizes, backward=True, all_states=True, save=True, few_rows=few_rows)
        after = after_loop(plan.equations, plan.trace, "bias_ih" in plan.weights)
        self.fully_written = after.fully_written
        self.d_weights = {name: address(weight_buffer(self.cell, name, Kind.D_WEIGHT)) for name in requested.weights}
        self.d_states = [self.buffers.of_state(Kind.D_STATE, name) for name in self.cell.state]
        stored = [result.to.buffer for result in self.step.memory.results]
        recorded = {buffer.owner: buffer for buffer in stored if buffer.kind in (Kind.D_GATE, Kind.D_NEW)}
        self.recorded_widths = {name: buffer.width(sizes) for name, buffer in recorded.items()}
        self.tensors.recorded = [address(buffer) for buffer in recorded.values()]
        d_initial = [*self._state_arguments(Kind.D_NEXT), *self._state_arguments(Kind.D_RESTART)]
        self.tensors.results = [*self.d_weights.values(), *d_initial, address(self.buffers[Kind.D_PARAMETER])]
        self.d_data = address(self.buffers[Kind.D_DATA])
        self.saved = [*self.tensors.states, *self.tensors.kept]
        written = {buffer.kind for buffer in stored}
        for kind in (Kind.D_PRE, Kind.LEFT, Kind.UNPROJECTED, Kind.D_PROJECTED):
            if kind in written or kind is Kind.D_PRE:
                self.memory.per_row[address(self.buffers[kind])] = self._pitch(self.buffers[kind])
        if self.trace.records_factors:
            d_pre = address(self.buffers[Kind.D_PRE])
            self.recorded_widths["d_pre"] = self.memory.per_row.pop(d_pre) // sizes.bytes
            self.tensors.recorded.append(d_pre)
        for gradient in after.weight_gradients:
            self._add_gemms(gradient)
        if requested.data:
            columns, gates = [column for column, _ in after.input_gates], [gate for _, gate in after.input_gates]
            weights, data = self.input_weights(gates, transposed=True), self.row_vectors(self.buffers[Kind.D_DATA])
            d = self.row_vectors(self.buffers[Kind.D_PRE], min(columns, default=0), len(columns))
            self.tasks.after[-1].append(multiply(d, weights, 1, data, args.ROWS, sizes.bits, requested.added))
        self.check_arguments(*map(address, self.d_states), *self.saved, self.d_data)

    def _add_gemms(self, gradient: WeightGradient) -> None:
        """Add the GEMMs of a weight gradient, one per head, if the gradient is requested."""
        weight, sizes = gradient.weight, self.sizes
        biases = [name for name in gradient.biases if name in self.d_weights]
        if not biases and weight not in self.d_weights:
            return
        heads = self.cell.heads if "K" in gradient.axes else 1
        extents_of_head = {"U": sizes.H // heads, "V": sizes.P // heads}
        extents = {"D": sizes.D, "H": sizes.H, "P": sizes.P, "J": sizes.P} | extents_of_head
        units, width = (extents[axis] for axis in gradient.axes[-2:])
        right = gradient.right
        if weight not in self.d_weights:
            right, width = None, 0
        table, offset = self._right_operand(right) if right else (0, 0)
        buffer = self.buffers[gradient.d.kind]
        d = self.row_vectors(buffer, gradient.d.number, gradient.gate_count)
        head_bytes = units * self.element_size(buffer)
        for head in range(heads):
            first_row = gradient.gate * units * heads + head * units
            d_head = RowVectors(_with_offset(d.start, head * head_bytes), d.pitch, gradient.gate_count * units)
            start: Operand = (self.d_weights[weight], first_row * width * sizes.bytes) if right else 0
            totals: list[Operand] = [(self.d_weights[bias], first_row * sizes.bytes) for bias in biases]
            right_head = table, offset + head * width * sizes.bytes
            out = RowVectors(start, width * sizes.bytes, width)
            task = outer(d_head, args.ROWS, right_head, out, totals, sizes.bits, gradient.added, sizes.arithmetic)
            self.tasks.after[0].append(task)

    def _right_operand(self, right: KindColumn | StateBefore) -> tuple[Operand, int]:
        """Return the right operand of a weight gradient GEMM: a table of row addresses, and a byte offset in each row.

        The first use of a table adds the task that fills it.

        Args:
            right: the vectors that the weight multiplies: a column of a buffer, or a state before each step.
        """
        if isinstance(right, StateBefore):
            state = self.buffers.of_state(Kind.STATE, right.state)
            table = args.table(f"{right.state}_before_each")
            if table not in self.memory.per_row:
                self.memory.per_row[table] = 8
                initial = address(self.buffers.of_state(Kind.INITIAL, right.state))
                restart = address(self.buffers.of_state(Kind.RESTART, right.state)) if self.plan.restarts else initial
                states, reverse = self.row_vectors(state), self.plan.reverse
                task = small_tasks.fill_state_addresses(table, states, initial, restart, reverse)
                self.tasks.before[0].append(task)
            return table, 0
        buffer = self.buffers[right.kind]
        table = args.row_addresses(buffer)
        if table not in self.memory.per_row:
            self.memory.per_row[table] = 8
            self.tasks.before[0].append(small_tasks.fill_row_addresses(table, self.row_vectors(buffer), args.ROWS))
        return table, right.number * buffer.width(self.sizes) // buffer.columns * self.sizes.bytes


def _with_offset(start: Operand, offset: int) -> Operand:
    """Return an address plus an offset in bytes."""
    assert isinstance(start, tuple)
    return start[0], start[1] + offset


cached_backward_plan = lru_cache(1024)(BackwardPlan)
