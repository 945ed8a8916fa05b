"""The plan of a pass: its arguments, its memory, and its tasks before, in and after the loop over time.

`ForwardPlan` and `BackwardPlan` add the tasks before and after the loop. `executable.py` turns plans into launches.
"""

from collections.abc import Sequence
from itertools import chain
from math import prod

import torch

from glassgate.engines.axes import PROJECTED, UNITS
from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.amx import processor_for
from glassgate.engines.llvm_cpu.arguments import Argument, Property, address, pitch, starts
from glassgate.engines.llvm_cpu.gemm.integers import QuantisedMatrix
from glassgate.engines.llvm_cpu.gemm.pack import Matrix, MicrokernelMatrix, pack, unpacked_matrix
from glassgate.engines.llvm_cpu.gemm.products import RowVectors
from glassgate.engines.llvm_cpu.kernel import kernel_of
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Kind, RowPer, bias_buffer, noise_buffer, weight_buffer
from glassgate.engines.llvm_cpu.loops.phase import Product
from glassgate.engines.llvm_cpu.plan_parts import CallTensors, PassMemory, PassTasks, PassWork, StepTables
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.simd.blocking import size_of_sums
from glassgate.engines.llvm_cpu.sizes import Arithmetic, KernelSizes
from glassgate.engines.llvm_cpu.tasks import Bindings, Operand, ParallelTask
from glassgate.engines.llvm_cpu.workspace import align_up
from glassgate.engines.plan import Plan


class KernelPlan:
    """The plan of a pass of one direction at given sizes. It does not change after construction.

    Each thread runs the loop in one launch, for some of the sequences or for some of the units of all sequences.

    Args:
        plan: the equations of the direction.
        sizes: the sizes of the direction.
        backward: whether this is a backward pass.
        all_states: whether the results contain all states at every step, or only the output.
        save: whether a forward pass stores the values that the backward pass reads.
        rounds_output: whether the output is bfloat16.
        few_rows: whether the call has so few rows that weights are read without packing.

    Attributes:
        memory, tasks, tensors, tables, work: see `plan_parts.py`.
        loop: the task that runs the kernel.
        bindings: the default values of arguments of the loop.
        stored_states: the slice of the states that are stored at every step.
        is_reversed: whether the loop runs from the last step to the first.
        quantised_matrices: the integer matrices, which the caller packs.
        input_gates: the indices of the gates that the input GEMM computes, in the order of its columns.
        zeros: zeros that are read in place of missing biases and gradients.
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
        self.processor = processor_for(sizes.arithmetic).of_rows(sizes.N)
        step_inputs = sizes.D if sizes.has_few_inputs and trace.ih else 0
        compiled = kernel_of(plan.equations, trace, sizes.bits, backward, self.processor, step_inputs)
        self.step, self.kernel, self._function = compiled
        self.buffers = self.step.buffers
        widest = max(len(trace.ih) * sizes.H, len(trace.hh_only) * sizes.H, sizes.H, sizes.P)
        self.zeros = torch.zeros(widest, dtype=torch.float64, device="cpu")[None].expand(2, -1)
        self.memory, self.tasks = PassMemory(), PassTasks()
        self.is_reversed = plan.reverse != backward
        kept = plan.kept_widths(sizes.base_sizes)
        self.tensors = CallTensors(
            inputs=self._inputs(),
            states=self._state_arguments(Kind.STATE),
            initial=self._state_arguments(Kind.INITIAL),
            kept=tuple(address(self.buffers.of_saved(kind)) for kind in kept),
            recorded=[address(Buffer(Kind.GATE, gate)) for gate in trace.recorded],
        )
        self._state_starts = [starts(self.buffers.of_state(Kind.STATE, name)) for name in cell.state]
        self.stored_states = slice(int(rounds_output), None if all_states else 1)
        all_steps = [args.STARTS, *self._state_starts[self.stored_states]]
        self.tables = StepTables(all_steps, [v for v in self._state_starts if v not in all_steps])
        self.memory.scratch, self.memory.shared_scratch = self._scratch()
        self._constants = self._constant_values(save)
        self.quantised_matrices: list[QuantisedMatrix] = []
        self.input_gates = gate_indices(cell.gates, trace.ih)
        matrices = [(args.product_argument("weights", p.number), *self._matrix_of(p)) for p in self.step.products]
        packed = [self._pack(*matrix, sizes.arithmetic) for matrix in matrices]
        for k, p in enumerate(packed):
            layout = {"block_pitch": p.pitch, "gates": p.gate_offsets, "row_pitch": p.row_pitch}
            self._constants |= {args.product_argument(label, k): value for label, value in layout.items()}
        self._weight_operands = {args.product_argument("weights", k): p.start for k, p in enumerate(packed)}
        if step_inputs:
            self._constants[args.INPUT_BLOCK_PITCH] = self.input_weights(self.input_gates).pitch
        self.loop, self.bindings = self._loop()
        multiplications = sum(max(len(p.weight.gates), 1) * sizes.P * sizes.H for p in self.step.products)
        self.work = PassWork(
            packed_bytes=sum(p.size for p in packed),
            # The elementwise operations of a unit count as 50 multiplications.
            per_row=multiplications // cell.heads + 50 * sizes.H,
            can_divide_units=not self.step.row_sums and cell.heads == 1,
            has_barriers=args.BARRIER in self.kernel.arguments,
        )

    @property
    def one_thread_tasks(self) -> list[ParallelTask]:
        """The tasks before the loop, and the loop, for a call on one thread."""
        return [*chain(*self.tasks.before), self.loop]

    def buffered_rows(self, rows: int, threads: int) -> int:
        """Return the number of rows of the buffers of `PassMemory.per_row`.

        Args:
            rows: the number of rows of a call.
            threads: the number of threads of the call.
        """
        return rows

    def min_elements(self, argument: Argument) -> tuple[int, int, int]:
        """Return the number of elements that kernels access in a tensor: constant, per row, and per sequence.

        Args:
            argument: the argument for the address of the tensor.
        """
        buffer, sizes, names = argument.buffer, self.sizes, self.plan.weights
        if argument is args.ROUNDED_OUTPUT:
            return 0, sizes.P, 0
        assert buffer is not None
        if buffer.kind in (Kind.WEIGHT, Kind.D_WEIGHT):
            shapes = self.cell.shapes(sizes.D, sizes.H, sizes.P if "weight_hr" in names else 0)
            return prod(shapes[buffer.owner]), 0, 0
        width = buffer.width(sizes)
        return (0, width, 0) if buffer.kind.row_per is RowPer.STEP else (0, 0, width)

    def check_arguments(self, *others: Argument) -> None:
        """Assert that every address that the loop reads is passed by calls or has a default value.

        Args:
            others: arguments that calls pass in addition to `inputs`, `results` and `recorded`.
        """
        passed = {*self.tensors.inputs, *self.tensors.results, *self.tensors.recorded, *others}
        passed |= {*self.memory.weights, *self.memory.buffers, *self.memory.per_row, *self.memory.scratch}
        for operand in self.loop.operands:
            if isinstance(operand, Argument) and operand.property is Property.ADDRESS and operand not in passed:
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
        """Return the arguments that are the same in every call of these sizes."""
        sizes, constants = self.sizes, {args.SAVE: int(save), args.DT: -1 if self.is_reversed else 1}
        for axis in (UNITS, PROJECTED):
            width = sizes.extent(axis)
            constants |= {args.width(axis): width, args.axis_pitch(axis): width * sizes.bytes}
            (units, blocks), units_of_head = args.head_sizes(axis), width // self.cell.heads
            constants |= {units: units_of_head, blocks: -(-units_of_head // host().lanes(sizes.bits))}
        for argument in self.kernel.arguments:
            if argument.property is Property.PITCH and argument.buffer is not None:
                constants[argument] = self._pitch(argument.buffer)
        return constants

    def _pitch(self, buffer: Buffer) -> int:
        """Return the distance between the rows of a buffer in bytes."""
        size = buffer.width(self.sizes) * self.element_size(buffer)
        # GEMMs read columns of this buffer. With an additional vector per row, the elements of a column are in
        # different sets of the cache, so they do not evict each other.
        return size + host().width if buffer.kind is Kind.D_PRE else size

    def element_size(self, buffer: Buffer) -> int:
        """Return the size of an element of a buffer in bytes."""
        terms = self.sizes.arithmetic.terms
        return 2 * terms if terms and buffer.kind in args.ROUNDED_KINDS else self.sizes.bytes

    def _scratch(self) -> tuple[dict[Argument, int], list[Argument]]:
        """Return the sizes of the buffers of one launch, and the buffers that launches share if they divide the units.

        The buffers contain the sums of a tile, the addresses of rows, and temporary values.
        """
        vector, step, sizes = host().width, self.step, self.sizes
        candidates = {args.previous_state(state): 8 * sizes.N for state in step.states}
        for product in step.products:
            number, left = product.number, step.left_operand(product)
            candidates[args.product_argument("sums", number)] = size_of_sums(len(product.results), self.processor)
            candidates[args.product_argument("left", number)] = 8 * sizes.N
            depth = left.columns * sizes.extent(left.axis)
            candidates[args.product_argument("rounded", number)] = sizes.N * self.processor.rounded_pitch(depth)
        for temporary in step.temporaries.values():
            width = temporary.buffer.width(sizes) * sizes.bytes
            size = -(-width // vector) * vector if temporary.shares_row else sizes.N * width
            candidates[address(temporary.buffer)] = size
        for k in range(len(step.row_sums)):
            candidates[args.row_sum_argument("sum", k)] = sizes.N * vector
            candidates[args.row_sum_argument("total", k)] = sizes.N * sizes.bytes
        shared = [address(temporary.buffer) for temporary in step.temporaries.values() if not temporary.shares_row]
        return {
            argument: align_up(size) for argument, size in candidates.items() if argument in self.kernel.arguments
        }, shared

    def _loop(self) -> tuple[ParallelTask, Bindings]:
        """Return the task that runs the kernel, and the default values of its arguments."""
        sizes, constants, bindings = self.sizes, self._constants, dict[Argument, int]()
        for axis in (UNITS, PROJECTED):
            bindings |= dict(zip(args.unit_range(axis), (0, sizes.extent(axis)), strict=True))
        bindings |= {args.PARTIES: 1, args.BARRIER: 0, args.RESETS: 0}
        for half in ("ih", "hh"):
            bindings[address(bias_buffer(half, self.trace))] = self.zeros.data_ptr()
        for name in self.cell.state:
            d_state_pitch = pitch(self.buffers.of_state(Kind.D_STATE, name))
            bindings[d_state_pitch] = constants.pop(d_state_pitch, 0)
        replaced: dict[Argument, Operand] = {**self._weight_operands}
        if not self.plan.restarts:
            replaced |= dict(zip(self._state_arguments(Kind.RESTART), self._state_arguments(Kind.INITIAL), strict=True))
        operands = [constants.get(a, replaced.get(a, a)) for a in self.kernel.arguments[:-2]]
        bindings |= {a: 0 for a in operands if isinstance(a, Argument) and a not in bindings}
        return ParallelTask(self._function, operands, args.SEQUENCES), bindings

    def row_vectors(self, buffer: Buffer, column: int = 0, columns: int | None = None) -> RowVectors:
        """Return the rows of a buffer, or some of their columns.

        Args:
            buffer: the buffer.
            column: the first column.
            columns: the number of columns. The default is all columns from `column` on.
        """
        columns = buffer.columns - column if columns is None else columns
        column_width = buffer.width(self.sizes) // max(buffer.columns, 1)
        offset = column * column_width * self.element_size(buffer)
        return RowVectors((address(buffer), offset), self._pitch(buffer), columns * column_width)

    def input_weights(self, gates: Sequence[int], part: int = 0, transposed: bool = False) -> MicrokernelMatrix:
        """Pack the rows of some gates from `weight_ih`.

        Args:
            gates: the indices of the gates, in order.
            part: the index of the packed matrix, if several matrices divide the gates.
            transposed: whether the transpose is packed, for the gradient of the input.
        """
        gate_count, sizes = len(self.cell.gates), self.sizes
        start = address(weight_buffer(self.cell, "weight_ih"))
        matrix = Matrix(start, gate_count, gate_count * sizes.H, sizes.D, sizes.bits)
        to = args.product_argument("weights_ih", part)
        return self._pack(to, matrix, gates, 1, transposed, sizes.effective_input_arithmetic)

    def _matrix_of(self, product: Product) -> tuple[Matrix, Sequence[int], int, bool]:
        """Return the matrix of a product in the loop, its gates, its number of heads, and whether it is transposed."""
        (_, _, H, P, bits, *_), weight = self.sizes, product.weight
        gate_count = len(self.cell.gates) if weight.gates else 1
        rows, columns = (gate_count * H, P // weight.heads) if weight.gates else (P, H)
        matrix = Matrix(address(weight_buffer(self.cell, weight.name)), gate_count, rows, columns, bits)
        return matrix, weight.gates or (0,), weight.heads, weight.is_transposed

    def _pack(
        self, to: Argument, matrix: Matrix, chosen: Sequence[int], heads: int, transposed: bool, arithmetic: Arithmetic
    ) -> MicrokernelMatrix:
        """Pack the rows of some gates. With `few_rows`, matrices of full precision are read without packing.

        Args:
            to: the address of the packed matrix.
            matrix: the matrix to pack.
            chosen: the indices of the gates, in order.
            heads: the number of heads.
            transposed: whether the transpose is packed.
            arithmetic: the arithmetic of the product.
        """
        if self.few_rows and heads == 1 and not arithmetic and (not transposed or _are_adjacent(chosen)):
            return unpacked_matrix(matrix, chosen, transposed)
        if arithmetic is Arithmetic.INTEGERS:
            integers = QuantisedMatrix.of(to, matrix, chosen, heads)
            self.quantised_matrices.append(integers)
            self.memory.weights[to] = integers.packed.size
            return integers.packed
        packed = pack(to, matrix, chosen, heads, transposed, arithmetic)
        self.memory.weights[to] = packed.size
        self.tasks.packing += packed.tasks
        return packed


UNITS_PER_ROW, UNITS_PER_ROW_BACKWARD = 8, 32
"""Packing the weights of this many units takes the time that packed weights save per row, for few units.

The first number is for forward passes, the second for backward passes.
"""
MOST_UNPACKED_ROWS, MOST_UNPACKED_ROWS_BACKWARD = 64, 32
"""The rows above which packing always saves time, because for many units both times grow with the matrix."""


def have_few_rows(rows: int, sizes: Sequence[KernelSizes], backward: bool = False) -> tuple[bool, ...]:
    """Return, for each direction, whether its pass reads the weights without packing them.

    Packing saves time at every row. It is skipped if the call has few rows, also for its number of units.

    Args:
        rows: the number of rows of all steps.
        sizes: the sizes of each direction.
        backward: whether the pass is a backward pass.
    """
    units_per_row = UNITS_PER_ROW_BACKWARD if backward else UNITS_PER_ROW
    if rows > (MOST_UNPACKED_ROWS_BACKWARD if backward else MOST_UNPACKED_ROWS):
        return (False,) * len(sizes)
    return tuple([units_per_row * rows <= size.H for size in sizes])


def _are_adjacent(chosen: Sequence[int]) -> bool:
    """Return whether there are gates and each gate follows the previous one in memory."""
    return bool(chosen) and [*chosen] == [*range(chosen[0], chosen[0] + len(chosen))]


def gate_indices(gates: tuple[str, ...], chosen: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of some gates among all gates."""
    return tuple(gates.index(gate) for gate in chosen)
