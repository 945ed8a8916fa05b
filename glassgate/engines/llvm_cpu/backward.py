"""The backward pass: the loop, then the GEMMs for the gradients of the weights and of the input."""

from functools import lru_cache
from typing import NamedTuple

from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu import rows
from glassgate.engines.llvm_cpu.arguments import address
from glassgate.engines.llvm_cpu.gemm.products import RowVectors, multiply, outer
from glassgate.engines.llvm_cpu.loops.buffers import Kind, Place
from glassgate.engines.llvm_cpu.loops.program import Before, weight_buffer
from glassgate.engines.llvm_cpu.loops.sums import WeightGradient, weight_gradients
from glassgate.engines.llvm_cpu.plan import KernelPlan
from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.tasks import Operand
from glassgate.engines.plan import Plan, Sizes
from glassgate.engines.products import fully_written


class Wanted(NamedTuple):
    """The requested gradients. The caller allocates their memory, with or without zeros (`Backward.fully_written`)."""

    weights: tuple[str, ...]
    data: bool
    added: bool
    """Whether the gradient of the input is added to that of another direction."""


class Backward(KernelPlan):
    """The backward loop, then the GEMMs.

    Attributes:
        wanted: the requested gradients.
        fully_written: the parameters whose gradient is written for every gate, so that its memory needs no zeros.
        d_weights: the destination of each parameter's gradient, by name.
        d_states: the gradients that come from the caller.
        d_data: the destination of the input's gradient.
        saved: the tensors of the forward pass that are read.
        d_recorded: the widths of a recording's gradients, by the names of gates and new states; see also `Trace.rows`.
    """

    def __init__(self, plan: Plan, sizes: Sizes, wanted: Wanted) -> None:
        super().__init__(plan, sizes, True, True, True)
        self.wanted = wanted
        self.fully_written = fully_written(plan.cell, plan.trace, wanted.weights)
        self.d_weights = {name: address(weight_buffer(self.cell, name, Kind.D_WEIGHT)) for name in wanted.weights}
        self.d_states = [self.buffers.of_state(Kind.D_STATE, name) for name in self.cell.state]
        stored = [self.buffers.place(key).buffer for key in self.trace.backward.outputs]
        shown = {buffer.owner: buffer for buffer in stored if buffer.kind in (Kind.D_GATE, Kind.D_NEW)}
        self.d_recorded = {name: buffer.width(sizes) for name, buffer in shown.items()}
        self.recorded = [address(buffer) for buffer in shown.values()]
        d_initial = [*self._of_states(Kind.D_NEXT), *self._of_states(Kind.D_INITIAL)]
        self.written = [*self.d_weights.values(), *d_initial, address(self.buffers[Kind.D_PARAMETER])]
        self.d_data = address(self.buffers[Kind.D_DATA])
        self.saved = [*self.states, *self.kept]
        written = {buffer.kind for buffer in stored}
        for kind in (Kind.D_PRE, Kind.LEFT, Kind.UNPROJECTED, Kind.D_PROJECTED):
            if kind in written or kind is Kind.D_PRE:
                self.by_row[address(self.buffers[kind])] = self._pitch(self.buffers[kind])
        if self.trace.rows:
            d_pre = address(self.buffers[Kind.D_PRE])
            self.d_recorded["d_pre"] = self.by_row.pop(d_pre) // sizes.bytes
            self.recorded.append(d_pre)
        for gradient in weight_gradients(self.cell, self.trace, self.buffers):
            self._sum(gradient)
        if wanted.data:
            weights, data = self.input_weights(transposed=True), self.rows(self.buffers[Kind.D_DATA])
            d = self.rows(self.buffers[Kind.D_PRE], len(self.trace.hh_only))
            self.after[-1].append(multiply(d, weights, 1, data, args.ROWS, sizes.bits, wanted.added))
        self.check(*map(address, self.d_states), *self.saved, self.d_data)

    def _sum(self, gradient: WeightGradient) -> None:
        """Add the tasks of a weight gradient GEMM, one per head, if the gradient is requested."""
        sizes, heads, half = self.sizes, gradient.heads, gradient.half
        weight, biases = f"weight_{half}", [name for name in gradient.biases if name in self.d_weights]
        if not biases and weight not in self.d_weights:
            return
        units = (sizes.P if half == "hr" else sizes.H) // heads
        width = {"ih": sizes.D, "hh": sizes.P // heads, "hr": sizes.H}[half] if weight in self.d_weights else 0
        table, shift = self._right(gradient.right) if width else (0, 0)
        d = self.rows(gradient.d.buffer, gradient.d.column, gradient.gates)
        a_head = units * self.bytes(gradient.d.buffer)
        for head in range(heads):
            to = gradient.gate * units * heads + head * units
            own = RowVectors(_with_offset(d.start, head * a_head), d.pitch, gradient.gates * units)
            start: Operand = (self.d_weights[weight], to * width * sizes.bytes) if width else 0
            totals: list[Operand] = [(self.d_weights[bias], to * sizes.bytes) for bias in biases]
            right = table, shift + head * width * sizes.bytes
            out = RowVectors(start, width * sizes.bytes, width)
            self.after[0].append(outer(own, args.ROWS, right, out, totals, sizes.bits, gradient.added, sizes.terms))

    def _right(self, right: Place | Before) -> tuple[Operand, int]:
        """The table of the addresses of the row vectors that a weight multiplies, and their offset in bytes."""
        if isinstance(right, Before):
            state = self.buffers.of_state(Kind.STATE, right.state)
            table = args.table(f"{right.state}_before_each")
            if table not in self.by_row:
                self.by_row[table] = 8
                initial = address(self.buffers.of_state(Kind.INITIAL, right.state))
                restart = address(self.buffers.of_state(Kind.RESTART, right.state)) if self.plan.restarts else initial
                fill = rows.rows_before(table, self.rows(state), initial, restart, self.plan.reverse)
                self.before[0].append(fill)
            return table, 0
        table = args.row_addresses(right.buffer)
        if table not in self.by_row:
            self.by_row[table] = 8
            self.before[0].append(rows.rows_of(table, self.rows(right.buffer), args.ROWS))
        a_column = right.buffer.width(self.sizes) // right.buffer.columns
        return table, right.column * a_column * self.sizes.bytes


def _with_offset(start: Operand, offset: int) -> Operand:
    """An address plus an offset in bytes."""
    assert isinstance(start, tuple)
    return start[0], start[1] + offset


@lru_cache(1024)
def backward_plan(plan: Plan, sizes: Sizes, wanted: Wanted, processor: Processor) -> Backward:
    """The plan of backward passes with these properties."""
    return Backward(plan, sizes, wanted)
