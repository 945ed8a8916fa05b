"""The executable form of a pass: machine code for all directions of a layer and a number of threads, and its memory.

The *call values* are the addresses of a call's tensors and tables, and the bounds of its rows and steps. An executable
adds them to the constant arguments of its launches. First calls, repeated calls, ragged batches, resets, recordings and
streams differ only in their call values.

A *round* is a list of launches, one per thread, that run at the same time.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, count, islice
from time import monotonic
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines import processors
from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.bound import BoundPass, Template
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout, batch_layout, double_buffer_starts
from glassgate.engines.llvm_cpu.partition import LoopTimes, Partition, sequence_bounds, units_of_part
from glassgate.engines.llvm_cpu.plan import KernelPlan
from glassgate.engines.llvm_cpu.pool import threads
from glassgate.engines.llvm_cpu.ragged import CopyPlan
from glassgate.engines.llvm_cpu.tasks import (
    Bindings,
    BoundIndices,
    Launch,
    ParallelTask,
    TaskPart,
    join_parts,
    launch_template,
)
from glassgate.engines.llvm_cpu.workspace import ALIGN, Region, align_up, borrow
from glassgate.engines.memory import empty

AddressIndices = Mapping[Argument, int]
"""For each argument, its index among the addresses of a call."""

WORKSPACE, BARRIERS, WEIGHTS = range(3)
"""The indices of three call values: the addresses of the workspace, of the barriers and of direction 0's weights.

The addresses of the other directions' weights follow, and then all other call values.
"""
BARRIER_BYTES = 16
MAX_LAYOUTS = 256
"""The maximum number of batch layouts whose call values an executable caches."""
PADDED_MEMORY_ROWS = 2**12
"""On one thread, a ragged batch of up to this number of padded rows uses a workspace for the padded batch.

This workspace is larger than necessary, but its layout is cached, because it does not depend on the lengths.
"""


class LayoutValues(NamedTuple):
    """The call values that a batch layout determines.

    Attributes:
        values: the bounds of steps and rows, the addresses of tables, and the offsets of buffers whose size depends on
            the number of rows.
        workspace_size: the size of the workspace in bytes.
        owners: the objects that own the memory at these addresses.
    """

    values: "array[int]"
    workspace_size: int
    owners: Sequence[object]


class Executable:
    """A pass of a layer's directions on a number of threads.

    It uses three kinds of memory:

    - The weights are packed matrices and sums of biases. `run` packs them into the workspace, unless the caller passes
      the result of `pack`.
    - The workspace contains the intermediate results of one run. The next run on the same thread overwrites them.
    - The caller allocates all other tensors and passes their addresses to `run`.

    Args:
        plans: the kernel plan of each direction.
        partition: the division of the pass among threads.
        indices: for each direction, the index of each argument among the addresses of a call.
    """

    def __init__(self, plans: Sequence[KernelPlan], partition: Partition, indices: Sequence[AddressIndices]) -> None:
        self.plans, self.partition = plans, partition
        self._one_thread = partition.threads == 1
        self._directions_with_barriers = [
            d for d, parts in enumerate(partition.unit_parts) if parts > 1 and plans[d].work.has_barriers
        ]
        self._loop_times = LoopTimes()
        self._equal_length_layouts: dict[tuple[int, int], LayoutValues] = {}
        """The call values of the layouts of sequences of equal length, by the numbers of steps and sequences."""
        self._assign_indices(indices)
        regions = [Region() for _ in plans]
        self._weight_offsets = [
            region.allocate_all(plan.memory.weights) for region, plan in zip(regions, plans, strict=True)
        ]
        self._packed_sizes = [region.end for region in regions]
        self._fixed_size = sum(self._packed_sizes)
        """The size in bytes of the part of the workspace whose layout is the same in all calls."""
        self._loop_constants = [self._constants(d) for d in range(len(plans))]
        self._loop = [launch_template(part) for d in range(len(plans)) for part in self._loop_parts(d)]
        self._rounds: dict[tuple[bool, CopyPlan | None], list[list[Launch]]] = {}

    def pack(self, addresses: Iterable[int]) -> list[Tensor]:
        """Pack the weights of each direction into separate memory. The result is valid until the weights change.

        All executables whose plans have the same `PassMemory.weights` can use the result, for any number of sequences.

        Args:
            addresses: the addresses of a call. Only those of the parameters are used.
        """
        memory = [empty([size + ALIGN], torch.uint8) for size in self._packed_sizes]
        starts = [align_up(block.data_ptr()) for block in memory]
        unused = [0] * (self._first_address - WEIGHTS - len(starts))
        values = array("q", (0, 0, *starts, *unused, *addresses))
        packing = [self._part(d, task) for d, plan in enumerate(self.plans) for task in plan.tasks.packing]
        if packing:
            function, arguments = launch_template(join_parts(packing))
            Launch(function, arguments + values)()
        return memory

    def packed_offset(self, argument: Argument) -> int:
        """Return the offset in bytes of a packed matrix in the memory of the first direction's weights."""
        return self._weight_offsets[0][argument]

    def bound_pass(
        self, layout: BatchLayout, addresses: Iterable[int], packed: Sequence[Tensor], varying: int | None
    ) -> BoundPass:
        """Return a pass on one thread, with a workspace of its own, for calls that differ in at most one address.

        Args:
            layout, addresses, packed: as in `run`.
            varying: the index of the address that differs. Its value in `addresses` is ignored. None if no address
                differs.
        """
        assert self._one_thread
        layout_values = self._layout_values(layout)
        memory = empty([layout_values.workspace_size + ALIGN], torch.uint8)
        values = [
            align_up(memory.data_ptr()),
            0,
            *[align_up(block.data_ptr()) for block in packed],
            *layout_values.values,
        ]
        values += addresses
        parts = [
            self._part(d, task)
            for d, plan in enumerate(self.plans)
            for task in (*plan.one_thread_tasks, *chain(*plan.tasks.after))
        ]
        (function, arguments), additions = join_parts(parts)
        varying_slots = []
        for slot, index in additions:
            if varying is not None and index == self._first_address + varying:
                assert arguments[slot] == 0, "an address without an offset"
                varying_slots.append(slot)
            else:
                arguments[slot] += values[index]
        return BoundPass(Launch(function, arguments), varying_slots, (self, layout_values, memory, packed))

    def template(
        self, layout: BatchLayout, packed: Sequence[Tensor] | None, copies: CopyPlan | None, address_count: int
    ) -> Template | None:
        """Return a template of the pass. None if several threads run it, or if its memory depends on the lengths.

        Args:
            layout, packed, copies: as in `run`. If there are copies, the layout is that of the padded batch.
            address_count: the number of addresses of a call, including those of the copies.
        """
        if not self._one_thread or (copies is not None and layout.rows > PADDED_MEMORY_ROWS):
            return None
        layout_values, packs = self._layout_values(layout), packed is None
        rounds = self._rounds.get((packs, copies)) or self._create_rounds(packs, copies, address_count)
        ((function, arguments),) = rounds[0]
        starts = [0] * len(self.plans) if packed is None else [align_up(block.data_ptr()) for block in packed]
        values = arguments + array("q", (0, 0, *starts)) + layout_values.values
        first = len(arguments)
        offsets = accumulate(self._packed_sizes, initial=0)
        weights = list(zip(range(first + WEIGHTS, first + WEIGHTS + len(starts)), offsets, strict=False))
        owners = self, layout_values, packed
        rows = first + WEIGHTS + len(starts) + 1
        size = layout_values.workspace_size
        return Template(function, values, first + WORKSPACE, weights if packs else (), rows, size, owners)

    def run(
        self,
        layout: BatchLayout,
        addresses: Sequence[int],
        packed: Sequence[Tensor] | None = None,
        copies: CopyPlan | None = None,
    ) -> None:
        """Run the pass.

        Args:
            layout: the rows of each step.
            addresses: the addresses of the tensors that are read and written, and the pitches of some of them. The
                addresses of `copies` come last.
            packed: the result of `pack`; None if this run packs the weights.
            copies: the copies before and after the pass, if there are any.
        """
        key = layout.steps, layout.N
        layout_values = self._equal_length_layouts.get(key) if layout.has_equal_lengths else None
        layout_values = layout_values or self._layout_values(layout)
        start, _memory = borrow(layout_values.workspace_size)
        barriers = None
        if self._directions_with_barriers:
            barriers = torch.zeros(len(self.plans), 2, dtype=torch.int64, device="cpu")
        values = array("q", (start, 0 if barriers is None else barriers.data_ptr()))
        if packed is None:
            for size in self._packed_sizes:
                values.append(start)
                start += size
        else:
            values.extend([align_up(block.data_ptr()) for block in packed])
        values += layout_values.values
        values.extend(addresses)
        packs = packed is None
        rounds = self._rounds.get((packs, copies)) or self._create_rounds(packs, copies, len(addresses))
        if self._one_thread:
            function, arguments = rounds[0][0]
            arguments = arguments + values
            function.run(arguments.buffer_info()[0])
            return
        for launches in rounds:
            start_time = monotonic()
            threads.run([Launch(function, arguments + values) for function, arguments in launches])
            if barriers is not None and launches is self._loop:
                self._record_contention(layout, barriers, monotonic() - start_time)

    def _record_contention(self, layout: BatchLayout, barriers: Tensor, seconds: float) -> None:
        for d in self._directions_with_barriers:
            delayed = self._loop_times.record(self.plans[d], layout, int(barriers[d, 1]), seconds)
            processors.contention.note(delayed)

    def _assign_indices(self, address_indices: Sequence[AddressIndices]) -> None:
        """Assign an index to each call value: memory, then the values of `_layout_values`, then addresses."""
        thread_count, indices = self.partition.threads, count(WEIGHTS + len(self.plans))
        steps, rows, N, sizes, starts = islice(indices, 5)
        self._layout_indices = N, steps, sizes, starts
        self._whole_bounds: BoundIndices = {args.STEPS: (0, steps), args.ROWS: (0, rows), args.SEQUENCES: (0, N)}
        self._part_bounds: dict[Argument, Sequence[int]] = {
            argument: (0, *islice(indices, thread_count - 1), end)
            for argument, end in ((args.STEPS, steps), (args.ROWS, rows))
        }
        self._sequence_parts = min(self.partition.sequence_parts, max(self.plans[0].sizes.N, 1))
        if self._sequence_parts > 1:
            self._part_bounds[args.SEQUENCES] = (0, *islice(indices, self._sequence_parts))
        common: dict[Argument, tuple[int, ...]] = {args.STEPS: (steps,), args.ROWS: (rows,), args.SIZES: (sizes,)}
        self._value_indices: list[dict[Argument, tuple[int, ...]]] = []
        for d, plan in enumerate(self.plans):
            by_argument = common | {args.ORIGIN: (next(indices),)} | dict.fromkeys(plan.tables.all_steps, (starts,))
            if plan.tables.double_buffers:
                by_argument |= dict.fromkeys(plan.tables.double_buffers, (next(indices),))
            by_argument.update({argument: (WORKSPACE, next(indices)) for argument in plan.memory.per_row})
            by_argument |= dict.fromkeys((*plan.memory.buffers, *plan.memory.scratch), (WORKSPACE,))
            by_argument |= dict.fromkeys(plan.memory.weights, (WEIGHTS + d,))
            self._value_indices.append(by_argument)
        self._first_address = next(indices)
        for by_argument, direction_indices in zip(self._value_indices, address_indices, strict=True):
            by_argument |= {argument: (self._first_address + k,) for argument, k in direction_indices.items()}

    def _layout_values(self, layout: BatchLayout) -> LayoutValues:
        """Return the call values of a batch layout, in the order of `_assign_indices`."""
        (thread_count, _), steps, rows = self.partition, layout.steps, layout.rows
        if not layout.has_equal_lengths and self._one_thread and steps * layout.N <= PADDED_MEMORY_ROWS:
            # Only the number of rows and the addresses of the two tables differ from those of the padded batch.
            padded = self._equal_length_layouts.get((steps, layout.N)) or self._layout_values(
                batch_layout(None, steps * layout.N, layout.N)
            )
            values = padded.values[:]
            values[1:5] = array("q", (rows, layout.N, *layout.addresses))
            return LayoutValues(values, padded.workspace_size, (layout, padded))
        values = array("q", (steps, rows, layout.N, *layout.addresses))
        values.extend([size * k // thread_count for size in (steps, rows) for k in range(1, thread_count)])
        if self._sequence_parts > 1:
            values.extend(sequence_bounds(layout, self._sequence_parts)[1:])
        owners, ends, region = list[object]([layout]), list[int](), Region(self._fixed_size)
        for plan in self.plans:
            values.append(max(steps - 1, 0) if plan.is_reversed else 0)
            if plan.tables.double_buffers:
                starts = double_buffer_starts(steps, layout.N, plan.plan.reverse)
                owners.append(starts)
                values.append(starts.data_ptr() + 8)
            # On one thread, the directions run one after the other, so they use the same memory.
            region = Region(self._fixed_size) if self._one_thread else region
            buffered_rows = plan.buffered_rows(rows, thread_count)
            values.extend([region.allocate(size * buffered_rows) for size in plan.memory.per_row.values()])
            ends.append(region.end)
        layout_values = LayoutValues(values, max(ends), owners)
        if layout.has_equal_lengths:
            if len(self._equal_length_layouts) >= MAX_LAYOUTS:
                self._equal_length_layouts.clear()
            self._equal_length_layouts[steps, layout.N] = layout_values
        return layout_values

    def _part(self, d: int, task: ParallelTask, k: int = 0, parts: int = 1) -> TaskPart:
        """Return the k-th part of a task of direction `d`."""
        bounds = self._part_bounds if parts > 1 else self._whole_bounds
        return task.part(self._loop_constants[d][0], self._value_indices[d], bounds, k, parts)

    def _create_rounds(self, packs: bool, copies: CopyPlan | None = None, address_count: int = 0) -> list[list[Launch]]:
        """Create the launches of all rounds.

        Args:
            packs: whether the pass packs the weights.
            copies: the copies before and after the pass, if there are any.
            address_count: the number of addresses of a call, including those of the copies.
        """
        plans, sizes = self.plans, self.plans[0].sizes
        copies_before, copies_after = (
            copies.parts(sizes.bits, self._layout_indices, self._first_address + address_count) if copies else ([], [])
        )
        packing = [plan.tasks.packing if packs else [] for plan in plans]
        if self._one_thread:
            tasks = [
                [*first, *plan.one_thread_tasks, *chain(*plan.tasks.after)]
                for first, plan in zip(packing, plans, strict=True)
            ]
            parts = [self._part(d, task) for d, direction_tasks in enumerate(tasks) for task in direction_tasks]
            rounds = [[launch_template(join_parts([*copies_before, *parts, *copies_after]))]]
        else:
            first = [[*tasks, *plan.tasks.before[0]] for tasks, plan in zip(packing, plans, strict=True)]
            before = [first, *zip(*[plan.tasks.before[1:] for plan in plans], strict=True)]
            after = zip(*[plan.tasks.after for plan in plans], strict=True)
            rounds = [
                *[[launch_template(part)] for part in copies_before],
                *map(self._round_launches, before),
                self._loop,
                *map(self._round_launches, after),
                *[[launch_template(part)] for part in copies_after],
            ]
        self._rounds[packs, copies] = rounds = [launches for launches in rounds if launches]
        return rounds

    def _round_launches(self, tasks: Sequence[Sequence[ParallelTask]]) -> list[Launch]:
        """Return the launches of a round before or after the loop: one per thread, or only one if all tasks are light.

        Args:
            tasks: the tasks of each direction.
        """
        pairs = [(d, task) for d, direction_tasks in enumerate(tasks) for task in direction_tasks]
        if not pairs:
            return []
        parts = 1 if all([task.is_light for _, task in pairs]) else self.partition.threads
        return [launch_template(join_parts([self._part(d, task, k, parts) for d, task in pairs])) for k in range(parts)]

    def _constants(self, d: int) -> list[Bindings]:
        """Return the constant arguments of each launch of a direction's loop.

        The tasks before and after the loop use the constants of the first launch.
        """
        plan, unit_parts = self.plans[d], self.partition.unit_parts[d]
        region = Region(sum(self._packed_sizes) if self._one_thread else self._fixed_size)
        constants = plan.bindings | dict.fromkeys(self._value_indices[d], 0)
        constants |= self._weight_offsets[d] | region.allocate_all(plan.memory.buffers)
        count = unit_parts if unit_parts > 1 else self._sequence_parts
        by_launch = [constants | region.allocate_all(plan.memory.scratch) for _ in range(count)]
        if unit_parts > 1:
            shared = region.allocate_all(
                {argument: plan.memory.scratch[argument] for argument in plan.memory.shared_scratch}
            )
            by_launch = [v | shared | units_of_part(plan, k, unit_parts) for k, v in enumerate(by_launch)]
        if d in self._directions_with_barriers:
            by_launch = [v | {args.BARRIER: BARRIER_BYTES * d, args.PARTIES: unit_parts} for v in by_launch]
        self._fixed_size = max(self._fixed_size, region.end)
        return by_launch

    def _loop_parts(self, d: int) -> list[TaskPart]:
        """Return the parts of a direction's loop, one per thread that runs it."""
        loop, constants, indices = self.plans[d].loop, self._loop_constants[d], self._value_indices[d]
        if self.partition.unit_parts[d] == 1:
            bounds = self._part_bounds if self._sequence_parts > 1 else self._whole_bounds
            return [loop.part(bindings, indices, bounds, k, len(constants)) for k, bindings in enumerate(constants)]
        barrier = {args.BARRIER: (BARRIERS,)} if d in self._directions_with_barriers else {}
        return [loop.part(bindings, indices | barrier, self._whole_bounds) for bindings in constants]
