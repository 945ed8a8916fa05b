"""The division of a pass among threads: the number of threads, and the part of the loop that each thread runs."""

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
"""The number of multiplications per thread below which another thread costs more than it saves."""
MIN_WORK_PER_STEP = 30_000
"""The number of multiplications per step and thread below which a barrier at every step costs more than it saves.

Threads that divide the units need such barriers if a step reads the results of the previous step.
"""
PRIVATE_CACHE_BYTES = 1_500_000
"""The largest size in bytes of weights that stay in the private cache of a core.

For larger weights, threads divide the units if possible, so that the part of each thread stays in its core's cache.
"""


class Partition(NamedTuple):
    """The division of a pass among threads.

    Attributes:
        threads: the number of threads. They also divide the tasks before and after the loop, except very short tasks.
        unit_parts: for each direction, the number of threads that divide the units of all sequences in the loop; 1 if
            threads divide the sequences instead.
    """

    threads: int
    unit_parts: tuple[int, ...]

    @property
    def sequence_parts(self) -> int:
        """The number of parts into which the sequences of one direction are divided."""
        return max(1, self.threads // len(self.unit_parts))


def choose_partition(plans: Sequence[KernelPlan], layout: BatchLayout) -> Partition:
    """Choose the division of a pass with these directions."""
    work = _work(plans, layout)
    threads = processors.threads_for(work, MIN_WORK_PER_THREAD)
    if threads == 1:
        return one_thread_partition(len(plans))
    parts = max(1, threads // len(plans))
    return Partition(threads, tuple([_choose_unit_parts(plan, layout, parts) for plan in plans]))


def fits_one_thread(plans: Sequence[KernelPlan], layout: BatchLayout) -> bool:
    """Return whether the pass has so little work that `choose_partition` always chooses one thread."""
    return _work(plans, layout) <= MIN_WORK_PER_THREAD


def _work(plans: Sequence[KernelPlan], layout: BatchLayout) -> int:
    """Return the approximate number of multiplications of a pass with these directions."""
    return layout.rows * sum([plan.work.per_row for plan in plans])


@cache
def one_thread_partition(directions: int) -> Partition:
    """Return the division of a pass that runs on one thread."""
    return Partition(1, (1,) * directions)


def _choose_unit_parts(plan: KernelPlan, layout: BatchLayout, parts: int) -> int:
    """Choose the number of threads that divide the units of one direction, at most `parts`.

    Returns 1 if it is faster to divide the sequences. Dividing the units is faster in two cases: there are too few
    sequences to occupy the threads, or the weights are too large for the cache of one core.
    """
    if parts < 2 or not plan.work.can_divide_units or (plan.work.has_barriers and processors.contention):
        return 1
    min_work = MIN_WORK_PER_STEP * max(layout.steps, 1) if plan.work.has_barriers else MIN_WORK_PER_THREAD
    blocks = -(-plan.sizes.H // host().lanes(plan.sizes.bits))
    unit_parts = min(parts, _work([plan], layout) // min_work, blocks)
    if unit_parts < 2:
        return 1
    # Few sequences cannot be divided evenly. Dividing the units must not give a thread more work.
    few_sequences = 2 * unit_parts > layout.N and unit_parts * -(-layout.N // parts) >= layout.N
    large_weights = plan.work.packed_bytes > PRIVATE_CACHE_BYTES and 2 * MAX_ROWS * unit_parts >= layout.N
    return unit_parts if few_sequences or large_weights else 1


def sequence_bounds(layout: BatchLayout, parts: int) -> list[int]:
    """Return the index of the first sequence of each part, followed by the number of sequences.

    All parts have about the same number of rows.
    """
    N = layout.N
    if layout.has_equal_lengths or parts == 1 or N < 2:
        return [N * k // parts for k in range(parts + 1)]
    rows_before_sequence = layout.sizes[1:-1, None].clamp(max=torch.arange(N + 1, device="cpu")).sum(0)
    rows_before_part = torch.arange(parts, device="cpu") * layout.rows // parts
    return [*torch.searchsorted(rows_before_sequence, rows_before_part).tolist(), N]


def units_of_part(plan: KernelPlan, k: int, parts: int) -> Bindings:
    """Return the bounds of the units and projected units of thread k, if `parts` threads divide the units."""
    sizes, bindings = plan.sizes, Bindings()
    lanes = host().lanes(sizes.bits)
    for axis in (UNITS, PROJECTED):
        width = sizes.extent(axis)
        bounds = [min(-(-width // lanes) * n // parts * lanes, width) for n in (k, k + 1)]
        bindings |= dict(zip(args.unit_range(axis), bounds, strict=True))
    return bindings


class LoopTimes:
    """The shortest times of loops with barriers. If a loop takes much longer, other processes use its processors."""

    def __init__(self) -> None:
        self._shortest: WeakKeyDictionary[KernelPlan, tuple[float, float]] = WeakKeyDictionary()
        """The shortest times per step and per row, in seconds.

        One of them alone is not sufficient, because layouts differ in their rows per step. With more rows, a step takes
        longer, but a row takes less time.
        """

    def record(self, plan: KernelPlan, layout: BatchLayout, waits: int, seconds: float) -> bool:
        """Record the time of a loop. Return whether other processes delayed the loop.

        The loop was delayed if it took more than three times its shortest time, both per step and per row, or if it had
        more than one long wait per four steps.

        Args:
            plan: the direction of the loop.
            layout: the rows of the loop.
            waits: the number of long waits at barriers, see `atomics.wait`.
            seconds: the duration of the loop.
        """
        steps = max(layout.steps, 1)
        times = seconds / steps, seconds / max(layout.rows, 1)
        previous = self._shortest.get(plan, times)
        shortest = self._shortest[plan] = min(times[0], previous[0]), min(times[1], previous[1])
        return all(now > 3 * best for now, best in zip(times, shortest, strict=True)) or waits > steps // 4
