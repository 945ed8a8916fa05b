"""The division of a pass among threads: the number of threads, and the part of the loop that each one runs."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch

from glassgate.engines import processors
from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.llvm_cpu.plan import KernelPlan
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.simd.blocking import MOST_ROWS
from glassgate.engines.llvm_cpu.tasks import Bindings

FEW_OPERATIONS = 6_000_000
"""The number of multiplications per thread below which waking another thread costs more than it saves."""
FEW_A_STEP = 30_000
"""The number of multiplications per step and thread below which a barrier at every step costs more than it saves."""
OWN_CACHE = 1_500_000
"""The size in bytes of weights that stay in the private cache of a core. Threads divide larger weights if possible."""


class Partition(NamedTuple):
    """The division of a pass among threads.

    Attributes:
        threads: the number of threads that share the tasks around the loop.
        sharers: for each direction, the number of threads that share the units of each row in the loop; 1 if threads
            divide the rows instead.
    """

    threads: int
    sharers: tuple[int, ...]

    @property
    def row_parts(self) -> int:
        """The number of parts into which the rows of one direction are divided."""
        return max(1, self.threads // len(self.sharers))


def partition(plans: Sequence[KernelPlan], layout: BatchLayout) -> Partition:
    """The division of a pass of these directions."""
    work = layout.rows * sum([plan.work for plan in plans])
    threads = processors.threads_for(work, FEW_OPERATIONS)
    if threads == 1:
        return alone(len(plans))
    parts = max(1, threads // len(plans))
    return Partition(threads, tuple([_sharers(plan, layout, parts) for plan in plans]))


def is_small(plans: Sequence[KernelPlan], layout: BatchLayout) -> bool:
    """Whether one thread always runs a pass of these directions."""
    return layout.rows * sum([plan.work for plan in plans]) <= FEW_OPERATIONS


@cache
def alone(directions: int) -> Partition:
    """The division of a pass that one thread runs."""
    return Partition(1, (1,) * directions)


def _sharers(plan: KernelPlan, layout: BatchLayout, parts: int) -> int:
    """The number of threads that share the units of each row; 1 if it is faster that threads divide the rows.

    If a step reads the results of other threads, the threads wait for each other at every step.
    """
    if parts < 2 or not plan.splits_units or (plan.waits and processors.contention):
        return 1
    enough = FEW_A_STEP * max(layout.steps, 1) if plan.waits else FEW_OPERATIONS
    sharers = min(parts, layout.rows * plan.work // enough, -(-plan.sizes.H // host().lanes(plan.sizes.bits)))
    if sharers < 2:
        return 1
    few = 2 * sharers > layout.N and sharers * -(-layout.N // parts) >= layout.N
    return sharers if few or (plan.packed_bytes > OWN_CACHE and 2 * MOST_ROWS * sharers >= layout.N) else 1


def bounds_of_rows(layout: BatchLayout, parts: int) -> list[int]:
    """The first sequence of each part, and the end of the last part. All parts have about the same number of rows."""
    N = layout.N
    if layout.even or parts == 1 or N < 2:
        return [N * k // parts for k in range(parts + 1)]
    steps_before = layout.sizes[1:-1, None].clamp(max=torch.arange(N + 1, device="cpu")).sum(0)
    goals = torch.arange(parts, device="cpu") * layout.rows // parts
    return [*torch.searchsorted(steps_before, goals).tolist(), N]


def units_of_part(plan: KernelPlan, k: int, parts: int) -> Bindings:
    """The range of units of thread k, if `parts` threads share the units."""
    sizes, bindings = plan.sizes, Bindings()
    lanes = host().lanes(sizes.bits)
    for axis, width in (("H", sizes.H), ("P", sizes.P)):
        ends = [min(-(-width // lanes) * n // parts * lanes, width) for n in (k, k + 1)]
        bindings |= dict(zip(args.units(axis), ends, strict=True))
    return bindings


class Pace:
    """The best speed of loops with barriers, with which CPU contention is detected."""

    def __init__(self) -> None:
        self._best: WeakKeyDictionary[KernelPlan, tuple[float, float]] = WeakKeyDictionary()
        """The shortest time in seconds per step and per row. With fewer rows, a step takes less time and a row more."""

    def has_waited(self, plan: KernelPlan, layout: BatchLayout, waits: int, seconds: float) -> bool:
        """Whether a loop took three times its best time, or more than a quarter of its steps had long waits."""
        steps = max(layout.steps, 1)
        taken = seconds / steps, seconds / max(layout.rows, 1)
        before = self._best.get(plan, taken)
        best = self._best[plan] = min(taken[0], before[0]), min(taken[1], before[1])
        return all(now > 3 * then for now, then in zip(taken, best, strict=True)) or waits > steps // 4
