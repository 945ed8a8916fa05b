"""The executable form of a pass: machine code for all directions of a layer and a number of threads, and its memory.

The *numbers* of a call are the addresses of its tensors and tables and the bounds of its rows and steps. The executable
adds them to the constant arguments of its launches. First calls, repeated calls, ragged batches, resets, recordings and
streams differ only in their numbers.

A *round* is a list of launches, one per thread, that run at the same time.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count, islice
from time import monotonic
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines import processors
from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.compile import Function
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout, batch_layout, double_buffer_starts
from glassgate.engines.llvm_cpu.partition import LoopTimes, Partition, sequence_bounds, units_of_part
from glassgate.engines.llvm_cpu.plan import KernelPlan
from glassgate.engines.llvm_cpu.pool import threads
from glassgate.engines.llvm_cpu.ragged import CopyPlan
from glassgate.engines.llvm_cpu.tasks import Bindings, Bounds, Launch, ParallelTask, TaskPart, join, template
from glassgate.engines.llvm_cpu.workspace import ALIGN, aligned, borrow
from glassgate.engines.memory import empty

AddressIndices = Mapping[Argument, int]
"""For each argument, its index among the addresses of a call."""

DATA = 1
"""The index of the data among the addresses of a call. Resets have index 0."""
WORKSPACE, BARRIERS, WEIGHTS = range(3)
"""The indices of the workspace, the barriers and the weights of direction 0 among the numbers of a call.

The weights of the other directions and then all other numbers follow.
"""
BARRIER_BYTES = 16
MAX_LAYOUTS = 256
"""The maximum number of batch layouts whose numbers an executable caches."""
PADDED_MEMORY_ROWS = 2**12
"""Up to this number of padded rows, a ragged batch uses the memory of a padded batch.

It takes more memory than necessary, but its numbers are cached, because they do not depend on the lengths.
"""


class Region:
    """A region of memory from which pieces are allocated in order."""

    def __init__(self, start: int = 0) -> None:
        self.end = start

    def take(self, size: int) -> int:
        """Allocate a number of bytes and return their offset in the region."""
        at = self.end
        self.end += aligned(size)
        return at

    def take_all(self, sizes: Mapping[Argument, int]) -> Bindings:
        """Allocate a piece for each argument and return the offsets."""
        return {argument: self.take(size) for argument, size in sizes.items()}


class PlacedLayout(NamedTuple):
    """The numbers that a batch layout determines.

    Attributes:
        numbers: the bounds of steps and rows, the addresses of tables, and the offsets of buffers that have rows.
        size: the size of the workspace in bytes.
        owners: the objects that keep the memory at these addresses alive.
    """

    numbers: "array[int]"
    size: int
    owners: Sequence[object]


class BoundPass(NamedTuple):
    """A pass on the same tensors in all calls, except at most one. Steps of a stream run such passes.

    Attributes:
        launch: the machine code and its arguments.
        variable: the indices of the arguments that each call sets to the address of the tensor that differs.
        owners: the objects that keep the memory at the addresses alive.
    """

    launch: Launch
    variable: Sequence[int]
    owners: Sequence[object]


class RepeatedPass:
    """A pass on one thread, with the same weights in all calls. The addresses of data and of the last tensors differ.

    Args:
        function: the machine code.
        numbers: the arguments of the machine code, without the last addresses.
        workspace, data: the indices of these two addresses.
        size: the size of the workspace in bytes.
        owners: the objects that keep the memory at the other addresses alive.
    """

    def __init__(
        self, function: Function, numbers: "array[int]", workspace: int, data: int, size: int, owners: Sequence[object]
    ) -> None:
        self._run, self._numbers, self._workspace, self._data = function.run, numbers, workspace, data
        self._size, self._alive = size, owners

    def run(self, data: int, others: Sequence[int]) -> None:
        """Run the pass with the addresses of the data and of the last tensors."""
        numbers = self._numbers + array("q", others)
        numbers[self._workspace], _memory = borrow(self._size)
        numbers[self._data] = data
        self._run(numbers.buffer_info()[0])


class Executable:
    """A pass of a layer's directions on a number of threads. Its memory has three regions:

    - weights: packed matrices and sums of biases. `run` packs them into the workspace, unless the caller passes the
      result of `pack`.
    - workspace: intermediate results of one run; the next run on the same thread overwrites them.
    - results: tensors of the caller. `run` takes their addresses, and those of the tensors that it reads.

    Args:
        plans: one per direction.
        partition: the division among threads.
        addresses: for each direction, the index of each argument among the addresses of a call.
    """

    def __init__(self, plans: Sequence[KernelPlan], partition: Partition, addresses: Sequence[AddressIndices]) -> None:
        self.plans, self.partition = plans, partition
        self._one_thread = partition.threads == 1
        self._waiting = [d for d, n in enumerate(partition.sharers) if n > 1 and plans[d].waits]
        self._loop_times, self._placed = LoopTimes(), dict[int, PlacedLayout]()
        self._assign_indices(addresses)
        packed = [Region() for _ in plans]
        self._packed_at = [region.take_all(plan.weights) for region, plan in zip(packed, plans, strict=True)]
        self._weights_sizes = [region.end for region in packed]
        self._loop_end = sum(self._weights_sizes)
        self._loop_constants = [self._constants(d) for d in range(len(plans))]
        self._loop = [template(part) for d in range(len(plans)) for part in self._loop_parts(d)]
        self._rounds: dict[tuple[bool, CopyPlan | None], list[list[Launch]]] = {}

    def pack(self, addresses: Iterable[int]) -> list[Tensor]:
        """Pack the weights of each direction into separate memory, which is valid until the weights change.

        All executables whose plans have the same `weights` can use the result, for any number of sequences.

        Args:
            addresses: the addresses of a call; only those of parameters are read.
        """
        memory = [empty([size + ALIGN], torch.uint8) for size in self._weights_sizes]
        starts = [aligned(own.data_ptr()) for own in memory]
        unused = [0] * (self._first_address - WEIGHTS - len(starts))
        numbers = array("q", (0, 0, *starts, *unused, *addresses))
        packing = [self._part(d, task) for d, plan in enumerate(self.plans) for task in plan.packing]
        if packing:
            function, arguments = template(join(packing))
            Launch(function, arguments + numbers)()
        return memory

    def packed_offset(self, argument: Argument) -> int:
        """The offset of a packed matrix in the memory of the first direction's weights."""
        return self._packed_at[0][argument]

    def bound_pass(
        self, layout: BatchLayout, addresses: Iterable[int], packed: Sequence[Tensor], free: int | None
    ) -> "BoundPass":
        """A pass on one thread, with a workspace of its own, for calls that differ in at most one address.

        Args:
            layout, addresses, packed: as in `run`.
            free: the index of the address that differs, whose value is ignored; None if no address differs.
        """
        assert self._one_thread
        placed = self._placed_layout(layout)
        memory = empty([placed.size + ALIGN], torch.uint8)
        numbers = [aligned(memory.data_ptr()), 0, *[aligned(own.data_ptr()) for own in packed], *placed.numbers]
        numbers += addresses
        parts = [
            self._part(d, task)
            for d, plan in enumerate(self.plans)
            for task in (*plan.one_thread_tasks, *chain(*plan.after))
        ]
        (function, arguments), added = join(parts)
        variable = []
        for slot, number in added:
            if free is not None and number == self._first_address + free:
                assert arguments[slot] == 0, "an address without an offset"
                variable.append(slot)
            else:
                arguments[slot] += numbers[number]
        return BoundPass(Launch(function, arguments), variable, (self, placed, memory, packed))

    def repeated_pass(
        self, layout: BatchLayout, addresses: Sequence[int], packed: Sequence[Tensor], owners: Sequence[Tensor]
    ) -> "RepeatedPass":
        """A pass on one thread for calls that differ in the address of the data and in their last addresses.

        Args:
            layout, packed: as in `run`.
            addresses: the first addresses of a call. Each call appends the others.
            owners: the tensors at these addresses, which the result keeps alive.
        """
        assert self._one_thread
        placed = self._placed_layout(layout)
        ((function, arguments),) = (self._rounds.get((False, None)) or self._launches(False))[0]
        head = array("q", [0, 0, *[aligned(own.data_ptr()) for own in packed], *placed.numbers])
        workspace, data = len(arguments) + WORKSPACE, len(arguments) + len(head) + DATA
        numbers = arguments + head + array("q", addresses)
        return RepeatedPass(function, numbers, workspace, data, placed.size, (self, placed, packed, owners))

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
            addresses: the addresses of the tensors that are read and written, and other numbers that are arguments;
                those of `copies` come last.
            packed: the result of `pack`, if the weights are packed.
            copies: the copies before and after the pass, if there are any.
        """
        placed = self._placed.get(layout.steps) if layout.even else None
        placed = placed or self._placed_layout(layout)
        start, _memory = borrow(placed.size)
        barriers = torch.zeros(len(self.plans), 2, dtype=torch.int64, device="cpu") if self._waiting else None
        numbers = array("q", (start, 0 if barriers is None else barriers.data_ptr()))
        if packed is None:
            for size in self._weights_sizes:
                numbers.append(start)
                start += size
        else:
            numbers.extend([aligned(own.data_ptr()) for own in packed])
        numbers += placed.numbers
        numbers.extend(addresses)
        rounds = self._rounds.get((packed is None, copies)) or self._launches(packed is None, copies, len(addresses))
        if self._one_thread:
            function, arguments = rounds[0][0]
            arguments = arguments + numbers
            function.run(arguments.buffer_info()[0])
            return
        for launches in rounds:
            began = monotonic()
            threads.run([Launch(function, arguments + numbers) for function, arguments in launches])
            if barriers is not None and launches is self._loop:
                self._note_contention(layout, barriers, monotonic() - began)

    def _note_contention(self, layout: BatchLayout, barriers: Tensor, seconds: float) -> None:
        for d in self._waiting:
            delayed = self._loop_times.is_delayed(self.plans[d], layout, int(barriers[d, 1]), seconds)
            processors.contention.note(delayed)

    def _assign_indices(self, addresses: Sequence[AddressIndices]) -> None:
        """Assign an index to each number of a call: regions, then the numbers of `_placed_layout`, then addresses."""
        threads_count, numbers = self.partition.threads, count(WEIGHTS + len(self.plans))
        steps, rows, sizes, starts = islice(numbers, 4)
        self._layout = steps, sizes, starts
        self._ends: Bounds = {args.STEPS: (0, steps), args.ROWS: (0, rows)}
        self._bounds: dict[Argument, Sequence[int]] = {
            argument: (0, *islice(numbers, threads_count - 1), end) for argument, (_, end) in self._ends.items()
        }
        self._row_parts = min(self.partition.row_parts, max(self.plans[0].sizes.N, 1))
        if self._row_parts > 1:
            self._bounds[args.SEQUENCES] = (0, *islice(numbers, self._row_parts))
        common: dict[Argument, tuple[int, ...]] = {args.STEPS: (steps,), args.ROWS: (rows,), args.SIZES: (sizes,)}
        self._numbers: list[dict[Argument, tuple[int, ...]]] = []
        for d, plan in enumerate(self.plans):
            own = common | {args.ORIGIN: (next(numbers),)} | dict.fromkeys(plan.step_starts, (starts,))
            if plan.double_buffer_starts:
                own |= dict.fromkeys(plan.double_buffer_starts, (next(numbers),))
            own.update({argument: (WORKSPACE, next(numbers)) for argument in plan.by_row})
            own |= dict.fromkeys((*plan.fixed, *plan.scratch), (WORKSPACE,)) | dict.fromkeys(
                plan.weights, (WEIGHTS + d,)
            )
            self._numbers.append(own)
        self._first_address = next(numbers)
        for own, named in zip(self._numbers, addresses, strict=True):
            own |= {argument: (self._first_address + k,) for argument, k in named.items()}

    def _placed_layout(self, layout: BatchLayout) -> PlacedLayout:
        """The numbers of a batch layout, in the order of `_assign_indices`."""
        (threads_count, _), steps, rows = self.partition, layout.steps, layout.rows
        if not layout.even and self._one_thread and steps * layout.N <= PADDED_MEMORY_ROWS:
            # Only the number of rows and the tables of rows differ from those of the padded batch.
            placed = self._placed.get(steps) or self._placed_layout(batch_layout(None, steps * layout.N, layout.N))
            numbers = placed.numbers[:]
            numbers[1:4] = array("q", (rows, *layout.addresses))
            return PlacedLayout(numbers, placed.size, (layout, placed))
        numbers = array("q", (steps, rows, *layout.addresses))
        numbers.extend([size * k // threads_count for size in (steps, rows) for k in range(1, threads_count)])
        if self._row_parts > 1:
            numbers.extend(sequence_bounds(layout, self._row_parts)[1:])
        owners, ends, region = list[object]([layout]), list[int](), Region(self._loop_end)
        for plan in self.plans:
            numbers.append(max(steps - 1, 0) if plan.backwards else 0)
            if plan.double_buffer_starts:
                alternating = double_buffer_starts(steps, layout.N, plan.plan.reverse)
                owners.append(alternating)
                numbers.append(alternating.data_ptr() + 8)
            region = Region(self._loop_end) if self._one_thread else region
            buffered_rows = plan.buffered_rows(rows, threads_count)
            numbers.extend([region.take(size * buffered_rows) for size in plan.by_row.values()])
            ends.append(region.end)
        placed = PlacedLayout(numbers, max(ends), owners)
        if layout.even:
            if len(self._placed) >= MAX_LAYOUTS:
                self._placed.clear()
            self._placed[steps] = placed
        return placed

    def _part(self, d: int, task: ParallelTask, k: int = 0, parts: int = 1) -> TaskPart:
        """The k-th part of a task of one direction."""
        bounds = self._bounds if parts > 1 else self._ends
        return task.part(self._loop_constants[d][0], self._numbers[d], bounds, k, parts)

    def _launches(self, packs: bool, copies: CopyPlan | None = None, count: int = 0) -> list[list[Launch]]:
        """The launches of all rounds. For a call with copies, `count` is the number of its addresses."""
        plans, sizes = self.plans, self.plans[0].sizes
        around = copies.parts(sizes.N, sizes.bits, self._layout, self._first_address + count) if copies else ([], [])
        packing = [plan.packing if packs else [] for plan in plans]
        if self._one_thread:
            tasks = [
                [*first, *plan.one_thread_tasks, *chain(*plan.after)]
                for first, plan in zip(packing, plans, strict=True)
            ]
            parts = [self._part(d, task) for d, own in enumerate(tasks) for task in own]
            rounds = [[template(join([*around[0], *parts, *around[1]]))]]
        else:
            first = [[*own, *plan.before[0]] for own, plan in zip(packing, plans, strict=True)]
            before = [first, *zip(*[plan.before[1:] for plan in plans], strict=True)]
            after = zip(*[plan.after for plan in plans], strict=True)
            rounds = [*map(self._round_launches, before), self._loop, *map(self._round_launches, after)]
            rounds[:0], rounds[len(rounds) :] = ([[template(part)] for part in parts] for parts in around)
        self._rounds[packs, copies] = rounds = [launches for launches in rounds if launches]
        return rounds

    def _round_launches(self, tasks: Sequence[Sequence[ParallelTask]]) -> list[Launch]:
        """The launches of a round before or after the loop: one per thread, or a single one if all tasks are light."""
        every = [(d, task) for d, own in enumerate(tasks) for task in own]
        parts = 1 if all([task.light for _, task in every]) else self.partition.threads
        return [template(join([self._part(d, t, k, parts) for d, t in every])) for k in range(parts)] if every else []

    def _constants(self, d: int) -> list[Bindings]:
        """The constant arguments of each launch of a direction's loop. Its tasks use those of the first launch."""
        plan, sharers = self.plans[d], self.partition.sharers[d]
        region = Region(sum(self._weights_sizes) if self._one_thread else self._loop_end)
        constants = (
            plan.bindings | dict.fromkeys(self._numbers[d], 0) | self._packed_at[d] | region.take_all(plan.fixed)
        )
        launches = sharers if sharers > 1 else self._row_parts
        by_launch = [constants | region.take_all(plan.scratch) for _ in range(launches)]
        if sharers > 1:
            shared = region.take_all({argument: plan.scratch[argument] for argument in plan.shared})
            by_launch = [own | shared | units_of_part(plan, k, sharers) for k, own in enumerate(by_launch)]
        if d in self._waiting:
            by_launch = [own | {args.BARRIER: BARRIER_BYTES * d, args.PARTIES: sharers} for own in by_launch]
        self._loop_end = max(self._loop_end, region.end)
        return by_launch

    def _loop_parts(self, d: int) -> list[TaskPart]:
        """The parts of a direction's loop, one per thread that runs it."""
        loop, constants, numbers = self.plans[d].loop, self._loop_constants[d], self._numbers[d]
        if self.partition.sharers[d] == 1:
            bounds = self._bounds if self._row_parts > 1 else {}
            return [loop.part(own, numbers, bounds, k, len(constants)) for k, own in enumerate(constants)]
        barrier = {args.BARRIER: (BARRIERS,)} if d in self._waiting else {}
        return [loop.part(own, numbers | barrier) for own in constants]
