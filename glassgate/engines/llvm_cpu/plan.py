"""The part of a pass that is the same in all calls of the same sizes: arguments, memory, and tasks around the loop."""

from collections.abc import Sequence
from itertools import chain
from math import prod

import torch

from glassgate.engines.axes import PROJECTED, UNITS
from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.amx import processor_for
from glassgate.engines.llvm_cpu.arguments import Argument, Property, address, pitch, starts
from glassgate.engines.llvm_cpu.gemm.integers import Quantised
from glassgate.engines.llvm_cpu.gemm.pack import Matrix, PackedMatrix, pack, unpacked
from glassgate.engines.llvm_cpu.gemm.products import RowVectors
from glassgate.engines.llvm_cpu.kernel import kernel_of
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Kind, Rows
from glassgate.engines.llvm_cpu.loops.program import Multiply, bias_buffer, noise_buffer, weight_buffer
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.simd.blocking import size_of_sums
from glassgate.engines.llvm_cpu.sizes import INTEGERS, KernelSizes
from glassgate.engines.llvm_cpu.tasks import Bindings, Operand, ParallelTask
from glassgate.engines.llvm_cpu.workspace import aligned
from glassgate.engines.plan import Plan


class KernelPlan:
    """The pass of one direction at given sizes. It does not change after construction.

    Each thread runs the loop in one launch, for some of the sequences or for some of the units of all sequences.

    Args:
        plan, sizes: the equations of the direction, and its sizes.
        backward: whether this is a backward pass.
        all_states: whether the results contain all states at every step, or only the output.
        save: whether a forward pass stores the values that the backward pass reads.
        rounds_output: whether the output is bfloat16.
        few_rows: whether the call has so few rows that weights are read without packing.

    Attributes:
        bindings: the default values of arguments.
        weights: the size of each packed matrix and sum of biases, in bytes.
        fixed: the size of each buffer of a call whose size does not depend on its number of rows, in bytes.
        by_row: the size of each other buffer of a call, in bytes per row.
        scratch: the size of each buffer that every launch has for itself, in bytes.
        shared: the buffers of `scratch` that launches share if they divide the units.
        packing: the tasks that fill `weights`.
        before: the tasks before the loop, in rounds. A round reads results of earlier rounds. The first round does not
            read `weights`.
        loop: the kernel.
        after: the tasks after the loop, in rounds.
        inputs: the arguments for the input tensors of every call: data, then the operands in the order of `plan`.
        written: the arguments for the results, which the caller allocates.
        states, initial, recorded: the arguments for states, initial states and recorded gates.
        step_starts: the arguments for tables with the index of the first row of each step, in buffers of all steps.
        double_buffer_starts: the same for states that are stored in a double buffer, with only two steps at a time.
        whole_states: the slice of the states that are stored at every step.
        backwards: whether the loop runs from the last step to the first.
        quantised: the integer matrices, which the caller packs.
        packed_bytes: the size of the matrices that the loop reads.
        work: the approximate number of multiplications per row and step.
        splits_units: whether threads can divide the units of a row.
        input_gates: the index of the gate of each column of input halves.
        waits: whether threads that divide units wait for each other at every step.
        zeros: zeros in place of missing biases and gradients.
    """

    def __init__(
        self,
        plan: Plan,
        sizes: KernelSizes,
        backward: bool,
        all_states: bool,
        save: bool,
        rounds_output: bool = False,
        few_rows: bool = False,
    ) -> None:
        self.plan, self.sizes, self.is_backward, self.few_rows = plan, sizes, backward, few_rows
        self.cell, self.trace = cell, trace = plan.cell, plan.trace
        self.processor = processor_for(sizes.terms).of_rows(sizes.N)
        step_inputs = sizes.D if sizes.few_inputs and trace.ih else 0
        compiled = kernel_of(cell, trace, sizes.bits, backward, self.processor, step_inputs)
        self.program, self.kernel, self._function = compiled
        self.buffers = self.program.buffers
        widest = max(len(trace.ih) * sizes.H, len(trace.hh_only) * sizes.H, sizes.H, sizes.P)
        self.zeros = torch.zeros(widest, dtype=torch.float64, device="cpu")[None].expand(2, -1)
        self.weight_sizes: dict[Argument, int] = {}
        self.buffer_sizes: dict[Argument, int] = {}
        self.row_sizes: dict[Argument, int] = {}
        self.packing: list[ParallelTask] = []
        self.rounds_before: list[list[ParallelTask]] = [[]]
        self.rounds_after: list[list[ParallelTask]] = [[]]
        self.is_reversed = plan.reverse != backward
        self.states, self.initial = self._state_arguments(Kind.STATE), self._state_arguments(Kind.INITIAL)
        self.kept = tuple(address(self.buffers.place((name, 0)).buffer) for name in plan.kept_widths(sizes.of_call))
        self.recorded = [address(Buffer(Kind.GATE, gate)) for gate in trace.recorded]
        self.inputs = self._inputs()
        self.results: list[Argument] = []
        every = self._state_starts = [starts(self.buffers.of_state(Kind.STATE, name)) for name in cell.state]
        self.stored_states = slice(int(rounds_output), None if all_states else 1)
        self.step_starts = [args.STARTS, *every[self.stored_states]]
        self.double_buffer_starts = [v for v in every if v not in self.step_starts]
        self.scratch_sizes, self.shared_scratch = self._scratch()
        self._constants = self._constant_values(save)
        self.quantised_matrices: list[Quantised] = []
        self.input_gates = gate_indices(cell.gates, trace.ih)
        of_loop = [(args.of_product("weights", m.number), *self._matrix_of(m)) for m in self.program.products]
        packed = [self._pack(*arguments, sizes.terms) for arguments in of_loop]
        for k, p in enumerate(packed):
            layout = {"block_pitch": p.pitch, "gates": p.gates, "row_pitch": p.row_pitch}
            self._constants |= {args.of_product(label, k): value for label, value in layout.items()}
        self._weight_operands = {args.of_product("weights", k): p.start for k, p in enumerate(packed)}
        if step_inputs:
            self._constants[args.INPUT_BLOCK_PITCH] = self.input_weights(self.input_gates).pitch
        self.loop, self.bindings = self._loop()
        self.packed_bytes = sum(p.size for p in packed)
        multiplications = sum(max(len(m.product.gates), 1) * sizes.P * sizes.H for m in self.program.products)
        # The elementwise operations of a unit count as 50 multiplications.
        self.work_per_row = multiplications // cell.heads + 50 * sizes.H
        self.can_divide_units = not self.program.row_sums and cell.heads == 1
        self.has_barriers = args.BARRIER in self.kernel.arguments

    @property
    def one_thread_tasks(self) -> list[ParallelTask]:
        """The tasks before the loop, and the loop, for a call on one thread."""
        return [*chain(*self.rounds_before), self.loop]

    def buffered_rows(self, rows: int, threads: int) -> int:
        """The number of rows of the buffers of `by_row`, in a call with this number of rows and of threads."""
        return rows

    def min_elements(self, argument: Argument) -> tuple[int, int]:
        """The number of elements that kernels access in a tensor: a constant, and a number per row of the call."""
        buffer, sizes, names = argument.buffer, self.sizes, self.plan.weights
        if argument is args.ROUNDED_OUTPUT:
            return 0, sizes.P
        assert buffer is not None
        if buffer.kind in (Kind.WEIGHT, Kind.D_WEIGHT):
            shapes = self.cell.shapes(sizes.D, sizes.H, sizes.P if "weight_hr" in names else 0)
            return prod(shapes[buffer.owner]), 0
        width = buffer.width(sizes)
        return (0, width) if buffer.kind.rows is Rows.STEP else (width * sizes.N, 0)

    def check_arguments(self, *others: Argument) -> None:
        """Raise an error if the loop reads the address of a buffer that no call passes.

        Args:
            others: arguments that calls pass in addition to the attributes of this class.
        """
        known = {*self.inputs, *self.results, *self.recorded, *others}
        known |= {*self.weight_sizes, *self.buffer_sizes, *self.row_sizes, *self.scratch_sizes}
        for operand in self.loop.operands:
            if isinstance(operand, Argument) and operand.role is Property.ADDRESS and operand not in known:
                assert self.bindings[operand], operand.label

    def _state_arguments(self, kind: Kind) -> tuple[Argument, ...]:
        return tuple(address(self.buffers.of_state(kind, name)) for name in self.cell.state)

    def _inputs(self) -> list[Argument]:
        cell = self.cell
        weights = [address(weight_buffer(cell, name)) for name in self.plan.weights]
        kinds = [Kind.INITIAL, *([Kind.RESTART] if self.plan.restarts else [])]
        states = [argument for kind in kinds for argument in self._state_arguments(kind)]
        noise = [address(noise_buffer(cell, self.buffers, name)) for name in self.plan.noise]
        return [address(self.buffers[Kind.DATA]), *weights, *states, *noise]

    def _constant_values(self, save: bool) -> Bindings:
        """The values that are the same for every call of these sizes."""
        sizes, known = self.sizes, {args.SAVE: int(save), args.TURN: -1 if self.is_reversed else 1}
        for axis in (UNITS, PROJECTED):
            n = sizes.extent(axis)
            known |= {args.width(axis): n, args.axis_pitch(axis): n * sizes.bytes}
            size, blocks = args.head(axis)
            known |= {size: n // self.cell.heads, blocks: -(-(n // self.cell.heads) // host().lanes(sizes.bits))}
        for argument in self.kernel.arguments:
            if argument.role is Property.PITCH and argument.buffer is not None:
                known[argument] = self._pitch(argument.buffer)
        return known

    def _pitch(self, buffer: Buffer) -> int:
        """The distance between rows of a buffer, in bytes."""
        size = buffer.width(self.sizes) * self.element_size(buffer)
        # GEMMs read columns of this buffer. With an additional vector per row, the numbers of a column are in different
        # sets of the cache, so that they do not evict each other.
        return size + host().width if buffer.kind is Kind.D_PRE else size

    def element_size(self, buffer: Buffer) -> int:
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
            depth = m.left.columns * sizes.extent(m.left.axis)
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
        sizes, known, bindings = self.sizes, self._constants, dict[Argument, int]()
        for axis in (UNITS, PROJECTED):
            bindings |= dict(zip(args.units(axis), (0, sizes.extent(axis)), strict=True))
        bindings |= {args.SEQUENCES: sizes.N, args.PARTIES: 1, args.BARRIER: 0, args.RESETS: 0}
        for half in ("ih", "hh"):
            bindings[address(bias_buffer(half, self.trace))] = self.zeros.data_ptr()
        for name in self.cell.state:
            d_state_pitch = pitch(self.buffers.of_state(Kind.D_STATE, name))
            bindings[d_state_pitch] = known.pop(d_state_pitch, 0)
        replaced: dict[Argument, Operand] = {**self._weight_operands}
        if not self.plan.restarts:
            replaced |= dict(zip(self._state_arguments(Kind.RESTART), self._state_arguments(Kind.INITIAL), strict=True))
        operands = [known.get(a, replaced.get(a, a)) for a in self.kernel.arguments[:-2]]
        bindings |= {a: 0 for a in operands if isinstance(a, Argument) and a not in bindings}
        return ParallelTask(self._function, operands, args.SEQUENCES), bindings

    def row_vectors(self, buffer: Buffer, column: int = 0, columns: int | None = None) -> RowVectors:
        """The rows of a buffer, or some columns of them."""
        columns = buffer.columns - column if columns is None else columns
        a_column = buffer.width(self.sizes) // max(buffer.columns, 1)
        shift = column * a_column * self.element_size(buffer)
        return RowVectors((address(buffer), shift), self._pitch(buffer), columns * a_column)

    def input_weights(self, gates: Sequence[int], part: int = 0, transposed: bool = False) -> PackedMatrix:
        """The packed rows of `weight_ih` of some gates.

        Args:
            gates: the indices of the gates, in order.
            part: the index of the packed matrix, if the gates are divided among several.
            transposed: whether the transpose is packed, for the gradient of the input.
        """
        n, sizes = len(self.cell.gates), self.sizes
        matrix = Matrix(address(weight_buffer(self.cell, "weight_ih")), n, n * sizes.H, sizes.D, sizes.bits)
        return self._pack(args.of_product("weights_ih", part), matrix, gates, 1, transposed, sizes.terms_of_input)

    def _matrix_of(self, multiplication: Multiply) -> tuple[Matrix, Sequence[int], int, bool]:
        """The matrix of a product in the loop, the indices of its gates, the heads, and whether it is transposed."""
        cell, (_, _, H, P, bits, *_), product = self.cell, self.sizes, multiplication.product
        transposed = product.op.endswith("_t")
        if product.op in ("hr", "hr_t"):
            return Matrix(address(weight_buffer(cell, "weight_hr")), 1, P, H, bits), (0,), 1, transposed
        n = len(cell.gates)
        matrix = Matrix(address(weight_buffer(cell, "weight_hh")), n, n * H, P // cell.heads, bits)
        return matrix, gate_indices(cell.gates, product.gates), cell.heads, transposed

    def _pack(
        self, to: Argument, matrix: Matrix, chosen: Sequence[int], heads: int, transposed: bool, terms: int
    ) -> PackedMatrix:
        """Pack the rows of some gates: quantised, rounded or exact. With `few_rows`, exact ones are not packed."""
        if self.few_rows and heads == 1 and not terms and (not transposed or _are_adjacent(chosen)):
            return unpacked(matrix, chosen, transposed)
        if terms == INTEGERS:
            integers = Quantised.of(to, matrix, chosen, heads)
            self.quantised_matrices.append(integers)
            self.weight_sizes[to] = integers.packed.size
            return integers.packed
        packed = pack(to, matrix, chosen, heads, transposed, terms)
        self.weight_sizes[to] = packed.size
        self.packing += packed.tasks
        return packed


UNITS_PER_ROW, UNITS_PER_ROW_BACKWARD = 8, 32
"""Unpacked weights cost as much additional time per row as packing the weights of this number of units."""


def have_few_rows(rows: int, sizes: Sequence[KernelSizes], backward: bool = False) -> tuple[bool, ...]:
    """Whether the pass of each direction reads its weights without packing them.

    Packing takes longer with more units, and saves time at every row. It is skipped if the call has few rows, in all
    steps together, for its number of units.
    """
    units_per_row = UNITS_PER_ROW_BACKWARD if backward else UNITS_PER_ROW
    return tuple([units_per_row * rows <= own.H for own in sizes])


def _are_adjacent(chosen: Sequence[int]) -> bool:
    """Whether there is a gate, and each gate follows the one before it in memory."""
    return bool(chosen) and [*chosen] == [*range(chosen[0], chosen[0] + len(chosen))]


def gate_indices(gates: tuple[str, ...], chosen: Sequence[str]) -> tuple[int, ...]:
    """The indices of some gates among all gates."""
    return tuple(gates.index(gate) for gate in chosen)
