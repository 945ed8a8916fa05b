"""The part of a pass that is the same for all calls of the same sizes: arguments, memory, and tasks around the loop."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from math import prod

import torch

from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu import rows
from glassgate.engines.llvm_cpu.amx import multiplier
from glassgate.engines.llvm_cpu.arguments import Argument, Role, address, pitch, starts
from glassgate.engines.llvm_cpu.chunks import ENOUGH_BYTES, Chunks
from glassgate.engines.llvm_cpu.gemm.integers import Quantised
from glassgate.engines.llvm_cpu.gemm.pack import Matrix, Packed, pack, unpacked
from glassgate.engines.llvm_cpu.gemm.products import RowVectors, multiply, rounded
from glassgate.engines.llvm_cpu.kernel import kernel_of
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Kind, Rows
from glassgate.engines.llvm_cpu.loops.program import Multiply, bias_buffer, noise_buffer, weight_buffer
from glassgate.engines.llvm_cpu.loops.schedule import MOST_GATES
from glassgate.engines.llvm_cpu.loops.sums import neighbours
from glassgate.engines.llvm_cpu.processor import Processor, host
from glassgate.engines.llvm_cpu.simd.blocking import size_of_sums
from glassgate.engines.llvm_cpu.tasks import Bindings, Operand, ParallelTask
from glassgate.engines.llvm_cpu.workspace import aligned
from glassgate.engines.plan import INTEGERS, Plan, Sizes


class KernelPlan:
    """The pass of one direction at given sizes. It does not change after construction.

    Attributes:
        bindings: the default values of arguments.
        weights: the size of each packed matrix and sum of biases, in bytes.
        fixed: the size of each buffer of a call, in bytes.
        by_row: the size of each buffer of a call whose size depends on its rows, in bytes per row.
        scratch: the size of each buffer of a launch, in bytes.
        shared: the buffers of `scratch` that launches share if they divide the units of a row.
        packing: the tasks that fill `weights`.
        before: the tasks before the loop, in rounds: a round reads results of earlier ones. Tasks of the first round
            do not read `weights`.
        loop: the kernel. Threads divide its sequences.
        after: the tasks of each round after the loop.
        inputs: the input tensors of every call: data, then the operands in the order of `plan`.
        written: the tensors for results, which the caller allocates.
        states, initial, recorded: the addresses of the states, of the initial states, and of recorded gates.
        every_step: the arguments with the first row of each step, for buffers that store all steps.
        whole_states: the states that are stored at every step.
        double_buffered: the same arguments for states that are stored for two steps only.
        backwards: whether the loop runs from the last step to the first.
        few_rows: whether weights are read without packing, because a call has few rows.
        quantised: the integer matrices, which the caller packs.
        packed_bytes: the size of the matrices that the loop reads.
        work: the approximate number of multiplications per row and step.
        splits_units: whether threads can divide the units of a row.
        waits: whether threads that divide units wait for each other at every step.
        zeros: zeros that replace missing inputs.
    """

    def __init__(
        self,
        plan: Plan,
        sizes: Sizes,
        backward: bool,
        all_states: bool,
        save: bool,
        rounded: bool = False,
        few_rows: bool = False,
    ) -> None:
        self.plan, self.sizes, self.backward, self.few_rows = plan, sizes, backward, few_rows
        self.cell, self.trace = cell, trace = plan.cell, plan.trace
        self.processor = multiplier(sizes.terms).of_rows(sizes.N)
        narrow = sizes.D if sizes.narrow and trace.ih else 0
        compiled = kernel_of(cell, trace, sizes.bits, backward, self.processor, narrow)
        self.program, self.kernel, self._function = compiled
        self.buffers = self.program.buffers
        widest = max(len(trace.ih) * sizes.H, len(trace.hh_only) * sizes.H, sizes.H, sizes.P)
        self.zeros = torch.zeros(widest, dtype=torch.float64, device="cpu")[None].expand(2, -1)
        self.weights: dict[Argument, int] = {}
        self.fixed: dict[Argument, int] = {}
        self.by_row: dict[Argument, int] = {}
        self.packing: list[ParallelTask] = []
        self.before: list[list[ParallelTask]] = [[]]
        self.after: list[list[ParallelTask]] = [[]]
        self.backwards = plan.reverse != backward
        self.states, self.initial = self._of_states(Kind.STATE), self._of_states(Kind.INITIAL)
        self.kept = tuple(address(self.buffers.place((name, 0)).buffer) for name in plan.kept(sizes))
        self.recorded = [address(Buffer(Kind.GATE, gate)) for gate in trace.recorded]
        self.inputs = self._inputs()
        self.written: list[Argument] = []
        every = self._starts = [starts(self.buffers.of_state(Kind.STATE, name)) for name in cell.state]
        self.whole_states = slice(int(rounded), None if all_states else 1)
        self.every_step = [args.STARTS, *every[self.whole_states]]
        self.double_buffered = [v for v in every if v not in self.every_step]
        self.scratch, self.shared = self._scratch()
        self._known = self._constants(save)
        self.quantised: list[Quantised] = []
        of_loop = [(args.of_product("weights", m.number), *self._matrix_of(m)) for m in self.program.products]
        packed = [self._pack(*arguments, sizes.terms) for arguments in of_loop]
        for k, p in enumerate(packed):
            self._known |= {args.of_product("block_pitch", k): p.pitch, args.of_product("gates", k): p.gates}
        self._unpacked = {args.of_product("weights", k): p.start for k, p in enumerate(packed) if p.gates}
        if narrow:
            self._known[args.INPUT_BLOCK_PITCH] = self.input_weights(transposed=False).pitch
        self.loop, self.bindings = self._loop()
        self.packed_bytes = sum(p.size for p in packed)
        multiplications = sum(max(len(m.product.gates), 1) * sizes.P * sizes.H for m in self.program.products)
        # The elementwise operations of a unit count as 50 multiplications.
        self.work = multiplications // cell.heads + 50 * sizes.H
        self.splits_units = not self.program.row_sums and cell.heads == 1
        self.waits = args.BARRIER in self.kernel.arguments

    @property
    def alone(self) -> list[ParallelTask]:
        """The tasks before the loop, and the loop, for a call on one thread."""
        return [*chain(*self.before), self.loop]

    def rows_at_once(self, rows: int, threads: int) -> int:
        """The number of rows for which a call allocates the buffers of `by_row`."""
        return rows

    def extent(self, argument: Argument) -> tuple[int, int]:
        """The smallest number of elements of a tensor, as a constant and a number per row."""
        buffer, sizes, names = argument.buffer, self.sizes, self.plan.weights
        if argument is args.ROUNDED_OUTPUT:
            return 0, sizes.P
        assert buffer is not None
        if buffer.kind in (Kind.WEIGHT, Kind.D_WEIGHT):
            shapes = self.cell.shapes(sizes.D, sizes.H, sizes.P if "weight_hr" in names else 0)
            return prod(shapes[buffer.owner]), 0
        width = buffer.width(sizes)
        return (0, width) if buffer.kind.rows is Rows.STEP else (width * sizes.N, 0)

    def check(self, *others: Argument) -> None:
        """Raise an error if the loop uses a buffer that no call allocates."""
        known = {*self.inputs, *self.written, *self.recorded, *others}
        known |= {*self.weights, *self.fixed, *self.by_row, *self.scratch}
        for operand in self.loop.operands:
            if isinstance(operand, Argument) and operand.role is Role.ADDRESS and operand not in known:
                assert self.bindings[operand], operand.label

    def _of_states(self, kind: Kind) -> tuple[Argument, ...]:
        return tuple(address(self.buffers.of_state(kind, name)) for name in self.cell.state)

    def _inputs(self) -> list[Argument]:
        cell = self.cell
        weights = [address(weight_buffer(cell, name)) for name in self.plan.weights]
        kinds = [Kind.INITIAL, *([Kind.RESTART] if self.plan.restarts else [])]
        states = [argument for kind in kinds for argument in self._of_states(kind)]
        noise = [address(noise_buffer(cell, self.buffers, name)) for name in self.plan.noise]
        return [address(self.buffers[Kind.DATA]), *weights, *states, *noise]

    def _constants(self, save: bool) -> Bindings:
        """The values that are the same for every call of these sizes."""
        sizes, known = self.sizes, {args.SAVE: int(save), args.TURN: -1 if self.backwards else 1}
        for axis, n in (("H", sizes.H), ("P", sizes.P)):
            known |= {args.width(axis): n, args.axis_pitch(axis): n * sizes.bytes}
            size, blocks = args.head(axis)
            known |= {size: n // self.cell.heads, blocks: -(-(n // self.cell.heads) // host().lanes(sizes.bits))}
        for argument in self.kernel.arguments:
            if argument.role is Role.PITCH and argument.buffer is not None:
                known[argument] = self._pitch(argument.buffer)
        return known

    def _pitch(self, buffer: Buffer) -> int:
        """The distance between rows of a buffer, in bytes."""
        size = buffer.width(self.sizes) * self.bytes(buffer)
        # Its columns are read across rows. With this pitch, they fall into different cache sets.
        return size + host().width if buffer.kind is Kind.D_PRE else size

    def bytes(self, buffer: Buffer) -> int:
        """The size of an element of a buffer, in bytes."""
        terms = self.sizes.terms
        return 2 * terms if terms and buffer.kind in args.ROUNDED else self.sizes.bytes

    def _scratch(self) -> tuple[dict[Argument, int], list[Argument]]:
        """The buffers of one launch and their sizes in bytes: sums of a tile, addresses of rows, temporaries."""
        vector, program, sizes = host().width, self.program, self.sizes
        needed = {args.before(state): 8 * sizes.N for state in program.states}
        for m in program.products:
            needed[args.of_product("sums", m.number)] = size_of_sums(len(m.product.results), self.processor)
            needed[args.of_product("left", m.number)] = 8 * sizes.N
            depth = m.left.columns * (sizes.P if m.left.axis == "P" else sizes.H)
            needed[args.of_product("rounded", m.number)] = sizes.N * self.processor.rounded_pitch(depth)
        for temporary in program.temporaries.values():
            width = temporary.buffer.width(sizes) * sizes.bytes
            size = -(-width // vector) * vector if temporary.of_one_pass else sizes.N * width
            needed[address(temporary.buffer)] = size
        for k in range(program.row_sums):
            needed[args.of_row_sum("sum", k)] = sizes.N * vector
            needed[args.of_row_sum("total", k)] = sizes.N * sizes.bytes
        shared = [address(temporary.buffer) for temporary in program.temporaries.values() if not temporary.of_one_pass]
        return {
            argument: aligned(size) for argument, size in needed.items() if argument in self.kernel.arguments
        }, shared

    def _loop(self) -> tuple[ParallelTask, Bindings]:
        """The kernel, and the default values of its arguments."""
        sizes, known, bindings = self.sizes, self._known, dict[Argument, int]()
        for axis, n in (("H", sizes.H), ("P", sizes.P)):
            bindings |= dict(zip(args.units(axis), (0, n), strict=True))
        bindings |= {args.SEQUENCES: sizes.N, args.PARTIES: 1, args.BARRIER: 0, args.RESETS: 0}
        for half in ("ih", "hh"):
            bindings[address(bias_buffer(half, self.trace))] = self.zeros.data_ptr()
        for name in self.cell.state:
            d_state_pitch = pitch(self.buffers.of_state(Kind.D_STATE, name))
            bindings[d_state_pitch] = known.pop(d_state_pitch, 0)
        replaced: dict[Argument, Operand] = {**self._unpacked}
        if not self.plan.restarts:
            replaced |= dict(zip(self._of_states(Kind.RESTART), self._of_states(Kind.INITIAL), strict=True))
        operands = [known.get(a, replaced.get(a, a)) for a in self.kernel.arguments[:-2]]
        bindings |= {a: 0 for a in operands if isinstance(a, Argument) and a not in bindings}
        return ParallelTask(self._function, operands, args.SEQUENCES), bindings

    def rows(self, buffer: Buffer, column: int = 0, columns: int | None = None) -> RowVectors:
        """The rows of a buffer, or some columns of them."""
        columns = buffer.columns - column if columns is None else columns
        a_column = buffer.width(self.sizes) // max(buffer.columns, 1)
        shift = column * a_column * self.bytes(buffer)
        return RowVectors((address(buffer), shift), self._pitch(buffer), columns * a_column)

    def factors(self, rows: RowVectors, to: Argument) -> tuple[list[ParallelTask], RowVectors]:
        """The tasks that round the rows of a matrix product, and the rounded rows. Without rounding, the same rows."""
        if not self.sizes.terms_of_input:
            return [], rows
        task, rounded_rows = rounded(rows, to, args.ROWS, self.sizes.terms_of_input)
        self.by_row[to] = rounded_rows.pitch
        return [task], rounded_rows

    def input_weights(self, transposed: bool, part: int = 0, gates: slice = slice(None)) -> Packed:
        """The packed input weights of the gates whose input half is used, or of some of them, packed as this part."""
        chosen, sizes = _numbers(self.cell.gates, self.trace.ih[gates]), self.sizes
        n = len(self.cell.gates)
        matrix = Matrix(address(weight_buffer(self.cell, "weight_ih")), n, n * sizes.H, sizes.D, sizes.bits)
        return self._pack(args.of_product("weights_ih", part), matrix, chosen, 1, transposed, sizes.terms_of_input)

    def _matrix_of(self, of: Multiply) -> tuple[Matrix, Sequence[int], int, bool]:
        cell, (_, _, H, P, bits, *_), product = self.cell, self.sizes, of.product
        transposed = product.op.endswith("_t")
        if product.op in ("hr", "hr_t"):
            return Matrix(address(weight_buffer(cell, "weight_hr")), 1, P, H, bits), (0,), 1, transposed
        n = len(cell.gates)
        matrix = Matrix(address(weight_buffer(cell, "weight_hh")), n, n * H, P // cell.heads, bits)
        return matrix, _numbers(cell.gates, product.gates), cell.heads, transposed

    def _pack(
        self, to: Argument, matrix: Matrix, chosen: Sequence[int], heads: int, transposed: bool, terms: int
    ) -> Packed:
        reads_rows = self.few_rows and heads == 1 and not (transposed or terms)
        packed = unpacked(matrix, chosen) if reads_rows else None
        if terms == INTEGERS:
            integers = Quantised.of(to, matrix, chosen, heads)
            self.quantised.append(integers)
            self.weights[to] = integers.packed.size
            return integers.packed
        if packed is None:
            packed = pack(to, matrix, chosen, heads, transposed, terms)
            self.weights[to] = packed.size
            self.packing += packed.tasks
        return packed


class Forward(KernelPlan):
    """The forward pass: the input product, then the loop, then the final states.

    Args:
        save: whether the values for the backward pass are stored, in memory that the caller allocates.
        all_states: whether all states are stored at every step. Otherwise only the output is.
        rounded: whether the output is bfloat16.
        few_rows: whether weights are read without packing, because a call has few rows.
    """

    def __init__(self, plan: Plan, sizes: Sizes, save: bool, all_states: bool, rounded: bool, few_rows: bool) -> None:
        super().__init__(plan, sizes, False, all_states, save, rounded, few_rows)
        trace, bits = self.trace, sizes.bits
        self._sum_biases()
        self._chunk = 0
        if trace.ih and not sizes.narrow:
            halves = self.buffers[Kind.INPUT]
            tasks, data = self.factors(self.rows(self.buffers[Kind.DATA]), args.ROUNDED_INPUT)
            self.before[0] += tasks
            self.before.append([])
            packed = 0
            for part, first in enumerate(range(0, len(trace.ih), MOST_GATES)):
                gates = slice(first, min(first + MOST_GATES, len(trace.ih)))
                weights, out = self.input_weights(False, part, gates), self.rows(halves, first, 1)
                self.before[-1].append(multiply(data, weights, gates.stop - first, out, args.ROWS, bits))
                packed += weights.size
            if not save:
                self.by_row[address(halves)] = self._pitch(halves)
            self._chunk = self.rows_of_chunk(packed)
        final = self._of_states(Kind.FINAL)
        given_states = self.states[self.whole_states]
        if rounded:
            given_states = args.ROUNDED_OUTPUT, *given_states
        self.written = [*given_states, *final, *(self.kept if save else ())]
        for state, of in zip(self.states, self._starts, strict=True):
            if of in self.double_buffered:
                assert state.buffer is not None
                self.fixed[state] = 2 * sizes.N * state.buffer.width(sizes) * sizes.bytes
        of_state = self.buffers.of_state
        self.after = [
            [
                rows.last(
                    address(of_state(Kind.FINAL, name)),
                    self.rows(of_state(Kind.STATE, name)),
                    address(of_state(Kind.INITIAL, name)),
                    starts(of_state(Kind.STATE, name)),
                    sizes.N,
                    plan.reverse,
                    bits,
                )
                for name in self.cell.state
            ]
        ]
        self.check(*(() if save else self.kept))

    @property
    def alone(self) -> list[ParallelTask]:
        if not self._chunk:
            return super().alone
        turn = -1 if self.backwards else 1
        return [Chunks([*chain(*self.before)], self.loop, turn, self._chunk, self.by_row)]

    def rows_at_once(self, rows: int, threads: int) -> int:
        return rows if threads > 1 or not self._chunk else min(rows, max(self._chunk, self.sizes.N))

    def rows_of_chunk(self, weights: int) -> int:
        """The number of input rows that are multiplied at once, so that the result stays in the cache.

        Args:
            weights: the size of the packed input weights in bytes.
        """
        return max(ENOUGH_BYTES, weights) // self._pitch(self.buffers[Kind.INPUT])

    def _sum_biases(self) -> None:
        """Sum the biases that the kernel adds: `b_ih + b_hh` if it sums both halves, otherwise each one separately."""
        if "bias_ih" not in self.plan.weights:
            return
        trace, shared = self.trace, len(self.trace.shared)
        self._add("ih", 0, trace.ih[:shared], "bias_ih", "bias_hh")
        self._add("ih", shared, trace.ih[shared:], "bias_ih")
        self._add("hh", 0, tuple(product.args[0] for product in trace.hh_only), "bias_hh")

    def _add(self, half: str, column: int, gates: tuple[str, ...], bias: str, other: str = "") -> None:
        """Add the task that stores sums of biases of some gates, beginning at a column."""
        H, size, out = self.sizes.H, self.sizes.bytes, address(bias_buffer(half, self.trace))
        for at, gate, count in neighbours(_numbers(self.cell.gates, gates)):
            first: Operand = address(weight_buffer(self.cell, bias)), gate * H * size
            second: Operand = self.zeros.data_ptr()
            if other:
                second = address(weight_buffer(self.cell, other)), gate * H * size
            self.packing.append(rows.add((out, (column + at) * H * size), first, second, count * H, self.sizes.bits))
        if gates:
            self.weights[out] = (column + len(gates)) * H * size


UNITS_PER_ROW = 8
"""Reading unpacked weights costs as much time per row as packing the weights of this number of units."""


def are_few(rows: int, sizes: Sizes) -> bool:
    """Whether a call has so few rows in all steps that packing the weights costs more time than it saves."""
    return UNITS_PER_ROW * rows <= sizes.H


@lru_cache(1024)
def forward_plan(
    plan: Plan, sizes: Sizes, save: bool, all_states: bool, rounded: bool, few_rows: bool, processor: Processor
) -> Forward:
    """The plan of calls with these properties."""
    return Forward(plan, sizes, save, all_states, rounded, few_rows)


def _numbers(gates: tuple[str, ...], chosen: Sequence[str]) -> tuple[int, ...]:
    return tuple(gates.index(gate) for gate in chosen)
