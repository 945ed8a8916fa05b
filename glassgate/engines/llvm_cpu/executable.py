"""The executable form of a pass: machine code for all directions of a layer and a number of threads, and its memory.

A call adds the addresses of its tensors and the rows of each step. First calls, repeated calls, ragged batches, resets,
recordings and streams differ only in these numbers.
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
from glassgate.engines.llvm_cpu.launch import Launch
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout, batch_layout, double_buffer_starts
from glassgate.engines.llvm_cpu.partition import Pace, Partition, bounds_of_rows, units_of_part
from glassgate.engines.llvm_cpu.plan import KernelPlan
from glassgate.engines.llvm_cpu.pool import threads
from glassgate.engines.llvm_cpu.ragged import CopyPlan
from glassgate.engines.llvm_cpu.tasks import Bindings, Bounds, ParallelTask, Part, joined, template
from glassgate.engines.llvm_cpu.workspace import ALIGN, aligned, borrow
from glassgate.engines.memory import empty

Addresses = Mapping[Argument, int]
"""The index of each argument among the addresses of a call."""

DATA = 1
"""The index of the data among the addresses of a call. Resets have index 0."""
WORKSPACE, BARRIERS, WEIGHTS = range(3)
"""The indices of the first numbers of a call, which are the addresses of regions. Each direction has its weights."""
BARRIER_BYTES = 16
MOST_LAYOUTS = 256
"""The number of batch layouts whose numbers an executable caches."""
FEW_ROWS = 2**12
"""Up to this number of padded rows, a ragged batch uses the memory of a padded batch."""


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


class Placed(NamedTuple):
    """The numbers of one batch layout.

    Attributes:
        numbers: the rows of each step, and the offset of each piece of memory whose size depends on them.
        size: the size of the workspace in bytes.
        alive: the owners of the memory that the numbers point to.
    """

    numbers: "array[int]"
    size: int
    alive: Sequence[object]


class Bound(NamedTuple):
    """A pass that has all of its addresses, or all but one.

    Attributes:
        launch: the machine code and its arguments.
        places: the indices of the arguments that must be set to the missing address.
        alive: the owners of the memory that the arguments point to.
    """

    launch: Launch
    places: Sequence[int]
    alive: Sequence[object]


class Repeated:
    """A pass on one thread whose calls differ in the addresses of the data and of the last tensors.

    Args:
        function: the machine code.
        numbers: the arguments of the machine code, without the last addresses.
        workspace, data: the indices of these two addresses.
        size: the size of the workspace in bytes.
        alive: the owners of the memory that the numbers point to.
    """

    def __init__(
        self, function: Function, numbers: "array[int]", workspace: int, data: int, size: int, alive: Sequence[object]
    ) -> None:
        self._run, self._numbers, self._workspace, self._data = function.run, numbers, workspace, data
        self._size, self._alive = size, alive

    def run(self, data: int, others: Sequence[int]) -> None:
        """Run the pass with the addresses of the data and of the last tensors."""
        numbers = self._numbers + array("q", others)
        numbers[self._workspace], _memory = borrow(self._size)
        numbers[self._data] = data
        self._run(numbers.buffer_info()[0])


class Executable:
    """A pass of a layer's directions on some threads. Its memory has three regions:

    - weights: packed matrices and sums of biases. `run` packs them into the workspace, unless `pack` has packed them.
    - workspace: intermediate results of one run; the next run on the same thread overwrites them.
    - results: tensors of the caller. `run` takes their addresses, and those of the tensors that it reads.

    Args:
        plans: one per direction.
        partition: the division among threads.
        addresses: for each direction, the index of each argument among the addresses of a call.
    """

    def __init__(self, plans: Sequence[KernelPlan], partition: Partition, addresses: Sequence[Addresses]) -> None:
        self.plans, self.partition = plans, partition
        self._alone = partition.threads == 1
        self._waiting = [d for d, n in enumerate(partition.sharers) if n > 1 and plans[d].waits]
        self._pace, self._placed = Pace(), dict[int, Placed]()
        self._number(addresses)
        packed = [Region() for _ in plans]
        self._packed_at = [region.take_all(plan.weights) for region, plan in zip(packed, plans, strict=True)]
        self._weights_sizes = [region.end for region in packed]
        self._end = sum(self._weights_sizes)
        self._known = [self._constants(d) for d in range(len(plans))]
        self._loop = [template(part) for d in range(len(plans)) for part in self._loops(d)]
        self._rounds: dict[tuple[bool, CopyPlan | None], list[list[Launch]]] = {}

    def pack(self, addresses: Iterable[int]) -> list[Tensor]:
        """Pack the weights of each direction into separate memory, which is valid until the weights change.

        All executables whose plans have the same `weights` can use the result, for any number of sequences.

        Args:
            addresses: the addresses of a call; only those of parameters are read.
        """
        memory = [empty([size + ALIGN], torch.uint8) for size in self._weights_sizes]
        starts = [aligned(own.data_ptr()) for own in memory]
        numbers = array("q", (0, 0, *starts, *[0] * (self._given - WEIGHTS - len(starts)), *addresses))
        packing = [self._part(d, task) for d, plan in enumerate(self.plans) for task in plan.packing]
        if packing:
            function, arguments = template(joined(packing))
            Launch(function, arguments + numbers)()
        return memory

    def place(self, argument: Argument) -> int:
        """The offset of a packed matrix of the first direction in its memory."""
        return self._packed_at[0][argument]

    def bound(
        self, layout: BatchLayout, addresses: Iterable[int], packed: Sequence[Tensor], free: int | None
    ) -> "Bound":
        """The pass on one thread for calls that differ in at most one address, with a workspace of its own.

        Args:
            layout, addresses, packed: as in `run`.
            free: the index of the address that differs. The value at this index is ignored.
        """
        assert self._alone
        placed = self._place(layout)
        memory = empty([placed.size + ALIGN], torch.uint8)
        numbers = [aligned(memory.data_ptr()), 0, *[aligned(own.data_ptr()) for own in packed], *placed.numbers]
        numbers += addresses
        tasks = [(d, task) for d, plan in enumerate(self.plans) for task in (*plan.alone, *chain(*plan.after))]
        (function, arguments), added = joined([self._part(d, task) for d, task in tasks])
        places = []
        for slot, number in added:
            if free is not None and number == self._given + free:
                assert arguments[slot] == 0, "an address without an offset"
                places.append(slot)
            else:
                arguments[slot] += numbers[number]
        return Bound(Launch(function, arguments), places, (self, placed, memory, packed))

    def repeated(
        self, layout: BatchLayout, addresses: Sequence[int], packed: Sequence[Tensor], alive: Sequence[Tensor]
    ) -> "Repeated":
        """The pass on one thread for calls with the same first addresses, except that of the data.

        Args:
            layout, packed: as in `run`.
            addresses: the first addresses of a call. Each call adds the others.
            alive: the tensors at these addresses.
        """
        assert self._alone
        placed = self._place(layout)
        ((function, arguments),) = (self._rounds.get((False, None)) or self._launches(False))[0]
        head = array("q", [0, 0, *[aligned(own.data_ptr()) for own in packed], *placed.numbers])
        data = len(arguments) + len(head) + DATA
        numbers = arguments + head + array("q", addresses)
        return Repeated(function, numbers, len(arguments) + WORKSPACE, data, placed.size, (self, placed, packed, alive))

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
        placed = placed or self._place(layout)
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
        if self._alone:
            function, arguments = rounds[0][0]
            arguments = arguments + numbers
            function.run(arguments.buffer_info()[0])
            return
        for launches in rounds:
            began = monotonic()
            threads.run([Launch(function, arguments + numbers) for function, arguments in launches])
            if barriers is not None and launches is self._loop:
                self._note(layout, barriers, monotonic() - began)

    def _note(self, layout: BatchLayout, barriers: Tensor, seconds: float) -> None:
        for d in self._waiting:
            waited = self._pace.has_waited(self.plans[d], layout, int(barriers[d, 1]), seconds)
            processors.contention.note(waited)

    def _number(self, addresses: Sequence[Addresses]) -> None:
        """Give each number of a call its index: the regions, the layout in the order of `_place`, the addresses."""
        many, numbers = self.partition.threads, count(WEIGHTS + len(self.plans))
        steps, rows, sizes, starts = islice(numbers, 4)
        self._layout = steps, sizes, starts
        self._ends: Bounds = {args.STEPS: (0, steps), args.ROWS: (0, rows)}
        self._bounds: dict[Argument, Sequence[int]] = {
            argument: (0, *islice(numbers, many - 1), end) for argument, (_, end) in self._ends.items()
        }
        self._row_parts = min(self.partition.row_parts, max(self.plans[0].sizes.N, 1))
        if self._row_parts > 1:
            self._bounds[args.SEQUENCES] = (0, *islice(numbers, self._row_parts))
        common: dict[Argument, tuple[int, ...]] = {args.STEPS: (steps,), args.ROWS: (rows,), args.SIZES: (sizes,)}
        self._numbers: list[dict[Argument, tuple[int, ...]]] = []
        for d, plan in enumerate(self.plans):
            own = common | {args.ORIGIN: (next(numbers),)} | dict.fromkeys(plan.every_step, (starts,))
            if plan.double_buffered:
                own |= dict.fromkeys(plan.double_buffered, (next(numbers),))
            own.update({argument: (WORKSPACE, next(numbers)) for argument in plan.by_row})
            own |= dict.fromkeys((*plan.fixed, *plan.scratch), (WORKSPACE,)) | dict.fromkeys(
                plan.weights, (WEIGHTS + d,)
            )
            self._numbers.append(own)
        self._given = next(numbers)
        for own, named in zip(self._numbers, addresses, strict=True):
            own |= {argument: (self._given + k,) for argument, k in named.items()}

    def _place(self, layout: BatchLayout) -> Placed:
        """The numbers of a batch layout, in the order of `_number`."""
        (many, _), steps, rows = self.partition, layout.steps, layout.rows
        if not layout.even and self._alone and steps * layout.N <= FEW_ROWS:
            # The numbers differ from those of the padded batch only in the rows. Its memory is large enough.
            placed = self._placed.get(steps) or self._place(batch_layout(None, steps * layout.N, layout.N))
            numbers = placed.numbers[:]
            numbers[1:4] = array("q", (rows, *layout.addresses))
            return Placed(numbers, placed.size, (layout, placed))
        numbers = array("q", (steps, rows, *layout.addresses))
        numbers.extend([of * k // many for of in (steps, rows) for k in range(1, many)])
        if self._row_parts > 1:
            numbers.extend(bounds_of_rows(layout, self._row_parts)[1:])
        alive, ends, region = list[object]([layout]), list[int](), Region(self._end)
        for plan in self.plans:
            numbers.append(max(steps - 1, 0) if plan.backwards else 0)
            if plan.double_buffered:
                alternating = double_buffer_starts(steps, layout.N, plan.plan.reverse)
                alive.append(alternating)
                numbers.append(alternating.data_ptr() + 8)
            region = Region(self._end) if self._alone else region
            at_once = plan.rows_at_once(rows, many)
            numbers.extend([region.take(size * at_once) for size in plan.by_row.values()])
            ends.append(region.end)
        placed = Placed(numbers, max(ends), alive)
        if layout.even:
            if len(self._placed) >= MOST_LAYOUTS:
                self._placed.clear()
            self._placed[steps] = placed
        return placed

    def _part(self, d: int, task: ParallelTask, k: int = 0, parts: int = 1) -> Part:
        """The k-th part of a task of one direction."""
        return task.part(self._known[d][0], self._numbers[d], self._bounds if parts > 1 else self._ends, k, parts)

    def _launches(self, packs: bool, copies: CopyPlan | None = None, count: int = 0) -> list[list[Launch]]:
        """The launches of each round, one per thread; `count` is the number of addresses of a call with copies."""
        plans, sizes = self.plans, self.plans[0].sizes
        around = copies.parts(sizes.N, sizes.bits, self._layout, self._given + count) if copies else ([], [])
        packing = [plan.packing if packs else [] for plan in plans]
        if self._alone:
            tasks = [[*first, *plan.alone, *chain(*plan.after)] for first, plan in zip(packing, plans, strict=True)]
            parts = [self._part(d, task) for d, own in enumerate(tasks) for task in own]
            rounds = [[template(joined([*around[0], *parts, *around[1]]))]]
        else:
            first = [[*own, *plan.before[0]] for own, plan in zip(packing, plans, strict=True)]
            before = [first, *zip(*[plan.before[1:] for plan in plans], strict=True)]
            after = zip(*[plan.after for plan in plans], strict=True)
            rounds = [*map(self._round, before), self._loop, *map(self._round, after)]
            rounds[:0], rounds[len(rounds) :] = ([[template(part)] for part in parts] for parts in around)
        self._rounds[packs, copies] = rounds = [launches for launches in rounds if launches]
        return rounds

    def _round(self, tasks: Sequence[Sequence[ParallelTask]]) -> list[Launch]:
        """The launches of a round before or after the loop: one per thread, or a single one if all tasks are light."""
        every = [(d, task) for d, own in enumerate(tasks) for task in own]
        parts = 1 if all([task.light for _, task in every]) else self.partition.threads
        return [template(joined([self._part(d, t, k, parts) for d, t in every])) for k in range(parts)] if every else []

    def _constants(self, d: int) -> list[Bindings]:
        """The constants of each launch of a direction's loop, and of its tasks in the first one."""
        plan, sharers = self.plans[d], self.partition.sharers[d]
        region = Region(sum(self._weights_sizes) if self._alone else self._end)
        constants = (
            plan.bindings | dict.fromkeys(self._numbers[d], 0) | self._packed_at[d] | region.take_all(plan.fixed)
        )
        launches = sharers if sharers > 1 else self._row_parts
        every = [constants | region.take_all(plan.scratch) for _ in range(launches)]
        if sharers > 1:
            shared = region.take_all({argument: plan.scratch[argument] for argument in plan.shared})
            every = [own | shared | units_of_part(plan, k, sharers) for k, own in enumerate(every)]
        if d in self._waiting:
            every = [own | {args.BARRIER: BARRIER_BYTES * d, args.PARTIES: sharers} for own in every]
        self._end = max(self._end, region.end)
        return every

    def _loops(self, d: int) -> list[Part]:
        """The launches of a direction's loop."""
        loop, every, numbers = self.plans[d].loop, self._known[d], self._numbers[d]
        if self.partition.sharers[d] == 1:
            bounds = self._bounds if self._row_parts > 1 else {}
            return [loop.part(known, numbers, bounds, k, len(every)) for k, known in enumerate(every)]
        barrier = {args.BARRIER: (BARRIERS,)} if d in self._waiting else {}
        return [loop.part(known, numbers | barrier) for known in every]
