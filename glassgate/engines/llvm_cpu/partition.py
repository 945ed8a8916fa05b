"""The division of a pass among threads: the number of threads, and the part of the loop that each one runs."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch

from glassgate.engines import processors
from glassgate.engines.axes import PROJECTED, UNITS
from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.llvm_cpu.plan import KernelPlan
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.simd.blocking import MAX_ROWS
from glassgate.engines.llvm_cpu.tasks import Bindings

MIN_WORK_PER_THREAD = 6_000_000
"""The number of multiplications per thread below which waking another thread costs more than it saves."""
MIN_WORK_PER_STEP = 30_000
"""The number of multiplications per step and thread below which a barrier at every step costs more than it saves.

Threads that divide units need such barriers if a step reads the results of the previous one.
"""
PRIVATE_CACHE_BYTES = 1_500_000
"""The size in bytes of weights that stay in the private cache of a core.

Threads divide larger weights by units if possible, so that the part of each thread stays in its cache.
"""


class Partition(NamedTuple):
    """The division of a pass among threads.

    Attributes:
        threads: the number of threads that share the tasks around the loop.
        sharers: for each direction, the number of threads that divide the units among them in the loop, for all
            sequences; 1 if the threads divide the sequences instead.
    """

    threads: int
    sharers: tuple[int, ...]

    @property
    def row_parts(self) -> int:
        """The number of parts into which the sequences of one direction are divided."""
        return max(1, self.threads // len(self.sharers))


def partition(plans: Sequence[KernelPlan], layout: BatchLayout) -> Partition:
    """The division of a pass of these directions."""
    work = layout.rows * sum([plan.work for plan in plans])
    threads = processors.threads_for(work, MIN_WORK_PER_THREAD)
    if threads == 1:
        return one_thread(len(plans))
    parts = max(1, threads // len(plans))
    return Partition(threads, tuple([_sharers(plan, layout, parts) for plan in plans]))


def is_small(plans: Sequence[KernelPlan], layout: BatchLayout) -> bool:
    """Whether one thread always runs a pass of these directions."""
    return layout.rows * sum([plan.work for plan in plans]) <= MIN_WORK_PER_THREAD


@cache
def one_thread(directions: int) -> Partition:
    """The division of a pass that one thread runs."""
    return Partition(1, (1,) * directions)


def _sharers(plan: KernelPlan, layout: BatchLayout, parts: int) -> int:
    """The number of threads that divide the units of all sequences; 1 if dividing the sequences is faster.

    Dividing the units is faster in two cases: there are too few sequences to occupy the threads, or the weights are
    too large for the cache of one core. It needs a barrier at every step if a step reads the results of other threads.
    """
    if parts < 2 or not plan.splits_units or (plan.waits and processors.contention):
        return 1
    enough = MIN_WORK_PER_STEP * max(layout.steps, 1) if plan.waits else MIN_WORK_PER_THREAD
    sharers = min(parts, layout.rows * plan.work // enough, -(-plan.sizes.H // host().lanes(plan.sizes.bits)))
    if sharers < 2:
        return 1
    # Few sequences cannot be divided evenly. The units are divided if this gives no thread more work.
    few_sequences = 2 * sharers > layout.N and sharers * -(-layout.N // parts) >= layout.N
    large_weights = plan.packed_bytes > PRIVATE_CACHE_BYTES and 2 * MAX_ROWS * sharers >= layout.N
    return sharers if few_sequences or large_weights else 1


def sequence_bounds(layout: BatchLayout, parts: int) -> list[int]:
    """The first sequence of each part, and the end of the last part. All parts have about the same number of rows."""
    N = layout.N
    if layout.even or parts == 1 or N < 2:
        return [N * k // parts for k in range(parts + 1)]
    steps_before = layout.sizes[1:-1, None].clamp(max=torch.arange(N + 1, device="cpu")).sum(0)
    rows_before = torch.arange(parts, device="cpu") * layout.rows // parts
    return [*torch.searchsorted(steps_before, rows_before).tolist(), N]


def units_of_part(plan: KernelPlan, k: int, parts: int) -> Bindings:
    """The range of units of thread k, if `parts` threads share the units."""
    sizes, bindings = plan.sizes, Bindings()
    lanes = host().lanes(sizes.bits)
    for axis in (UNITS, PROJECTED):
        width = sizes.extent(axis)
        ends = [min(-(-width // lanes) * n // parts * lanes, width) for n in (k, k + 1)]
        bindings |= dict(zip(args.units(axis), ends, strict=True))
    return bindings


class LoopTimes:
    """The shortest times of loops with barriers. A loop that takes much longer indicates CPU contention."""

    def __init__(self) -> None:
        self._best: WeakKeyDictionary[KernelPlan, tuple[float, float]] = WeakKeyDictionary()
        """The shortest times per step and per row, in seconds.

        Both are necessary, because layouts differ in their rows per step. With more rows, a step takes longer and a row
        takes less time.
        """

    def is_delayed(self, plan: KernelPlan, layout: BatchLayout, waits: int, seconds: float) -> bool:
        """Whether other processes delayed a loop.

        True if it took more than three times its shortest time, both per step and per row, or if threads waited long in
        more than a quarter of its steps.

        Args:
            plan, layout: the loop and its rows.
            waits: the number of long waits at barriers, see `atomics.wait`.
            seconds: the duration of the loop.
        """
        steps = max(layout.steps, 1)
        taken = seconds / steps, seconds / max(layout.rows, 1)
        before = self._best.get(plan, taken)
        best = self._best[plan] = min(taken[0], before[0]), min(taken[1], before[1])
        return all(now > 3 * then for now, then in zip(taken, best, strict=True)) or waits > steps // 4
