"""Calls of a layer's directions shared out among threads."""

from collections.abc import Sequence
from itertools import pairwise
from time import monotonic
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from glassgate.engines import processors
from glassgate.engines.lowering.batch import BatchLayout
from glassgate.engines.numba_cpu import arguments as given
from glassgate.engines.numba_cpu.arguments import Argument
from glassgate.engines.numba_cpu.bind import Call
from glassgate.engines.numba_cpu.launch import Launch, in_turn
from glassgate.engines.numba_cpu.plan import KernelPlan
from glassgate.engines.numba_cpu.pool import threads
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.simd.blocking import MOST_ROWS
from glassgate.engines.numba_cpu.tasks import Bindings, ParallelTask

FEW_OPERATIONS = 2_000_000
"""Below so many multiplications another thread costs more than it brings."""
FEW_A_STEP = 30_000
"""Below so many multiplications a step and thread, a barrier at every step costs more than it brings."""
OWN_CACHE = 1_500_000
"""Bytes of weights that stay in a core's own cache; of more, each thread had better read a part."""


def run(calls: Sequence[Call]) -> None:
    """Run every direction through its time, with what is to be done before and after."""
    at_once = processors.worth(sum(call.work for call in calls), FEW_OPERATIONS)
    if at_once == 1:
        in_turn([call.whole() for call in calls])()
        return
    _share([(call, call.plan.rounds_before) for call in calls], at_once)
    _loop(calls, at_once)
    _share([(call, call.plan.rounds_after) for call in calls], at_once)


def _share(all_rounds: Sequence[tuple[Call, Sequence[ParallelTask]]], at_once: int) -> None:
    """Round by round every thread does its part, or the caller does light ones alone."""
    for k in range(max(len(rounds) for _, rounds in all_rounds)):
        tasks = [(call, rounds[k]) for call, rounds in all_rounds]
        parts = 1 if all([task.light for _, task in tasks]) else at_once
        launches = zip(*[task.parts(call.bindings, parts) for call, task in tasks], strict=True)
        threads.run([*map(in_turn, launches)])


class _Pace:
    """Remembers how fast loops with barriers were, so as to see when other processes have the cores."""

    def __init__(self) -> None:
        self._best: WeakKeyDictionary[KernelPlan, tuple[float, float]] = WeakKeyDictionary()
        """The seconds that a step and a row have taken at best: a step of few rows costs less, a row more."""

    def waited(self, call: Call, barrier: Tensor, seconds: float) -> bool:
        """Whether such a loop took too much, or its threads waited long for each other at many steps."""
        steps = max(call.time.steps, 1)
        taken = seconds / steps, seconds / max(call.time.rows, 1)
        before = self._best.get(call.plan, taken)
        best = self._best[call.plan] = min(taken[0], before[0]), min(taken[1], before[1])
        return all(now > 3 * then for now, then in zip(taken, best, strict=True)) or int(barrier[1]) > steps // 4


_pace = _Pace()


def _loop(calls: Sequence[Call], at_once: int) -> None:
    parts = max(1, at_once // len(calls))
    launches: list[Launch] = []
    waiting: list[tuple[Call, Tensor]] = []
    for call in calls:
        sharers = sharing_units(call.plan, call.time, parts)
        if sharers > 1 and not call.plan.waits:
            launches += _parts_of_rows(call, sharers)
        elif sharers > 1 and not processors.contention:
            barrier = torch.zeros(2, dtype=torch.int64, device="cpu")
            waiting.append((call, barrier))
            launches += _parts_of_rows(call, sharers, barrier)
        else:
            launches += [call.loop(first, last) for first, last in _shares(call, parts)]
    start = monotonic()
    for k in range(0, len(launches), at_once):
        threads.run(launches[k : k + at_once])
    for call, barrier in waiting:
        processors.contention.note(_pace.waited(call, barrier, monotonic() - start))


def _shares(call: Call, parts: int) -> list[tuple[int, int]]:
    """The call's rows shared out so that each job has about as many steps."""
    N = call.time.N
    if parts == 1 or N < 2:
        return [(0, N)]
    if call.time.even:
        bounds = [N * k // parts for k in range(parts + 1)]
    else:
        steps_before = call.time.sizes[1:-1, None].clamp(max=torch.arange(N + 1, device="cpu")).sum(0)
        goals = torch.arange(parts + 1, device="cpu") * call.time.rows // parts
        bounds = torch.searchsorted(steps_before, goals).tolist()
        bounds[-1] = N
    return [(first, last) for first, last in pairwise(bounds) if first < last]


def sharing_units(plan: KernelPlan, time: BatchLayout, parts: int) -> int:
    """How many of some threads had better share the units of each row; one where each had better have rows of its own.

    They wait at every step where one reads what the others write.
    """
    enough = FEW_A_STEP * max(time.steps, 1) if plan.waits else FEW_OPERATIONS
    sharers = min(parts, time.rows * plan.work // enough, -(-plan.sizes.H // host().lanes(plan.sizes.bits)))
    if not plan.splits_units or sharers < 2:
        return 1
    few = 2 * sharers > time.N and sharers * -(-time.N // parts) >= time.N
    return sharers if few or (plan.packed > OWN_CACHE and 2 * MOST_ROWS * sharers >= time.N) else 1


def _parts_of_rows(call: Call, parts: int, barrier: Tensor | None = None) -> list[Launch]:
    shared = call.shared()
    if barrier is not None:
        shared |= {given.BARRIER: barrier.data_ptr(), given.PARTIES: parts}
    return [call.loop(0, call.time.N, shared | _units(call, part, parts)) for part in range(parts)]


def _units(call: Call, part: int, parts: int) -> Bindings:
    sizes, bindings = call.plan.sizes, dict[Argument, int]()
    lanes = host().lanes(sizes.bits)
    for axis, width in (("H", sizes.H), ("P", sizes.P)):
        blocks = -(-width // lanes)
        first, last = given.units(axis)
        bindings[first] = blocks * part // parts * lanes
        bindings[last] = min(blocks * (part + 1) // parts * lanes, width)
    return bindings
