"""One step again and again at the least cost: addresses are written down once, weights are packed once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.engines.numba_cpu.call import Call
from glassgate.engines.numba_cpu.jobs import Job
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.program import forward_program
from glassgate.engines.numba_cpu.timetable import timetable
from glassgate.engines.numba_cpu.workspace import Memory
from glassgate.engines.plan import Plan, Sizes


class Step:
    """A kernel of one step whose states go to and fro between two sets of buffers.

    Args:
        plan: of one direction without noise.
        sizes: of its tensors.
        weights: in the plan's order, contiguous.
        initial: (N, W) a state, the first ones; they become one of the two sets.
    """

    def __init__(self, plan: Plan, sizes: Sizes, weights: Sequence[Tensor], initial: Sequence[Tensor]) -> None:
        program = forward_program(plan, sizes, False, True, host())
        x = initial[0].new_empty(sizes.N, sizes.D)
        here, there = initial, [torch.empty_like(v) for v in initial]
        self._sets: list[Sequence[Tensor]] = [here, there]
        self._call = Call(program, timetable(None, sizes.N, sizes.N), Memory(own=True), x, [*weights, *here])
        packing, product = program.rounds_before
        packing.part(self._call.facts)()
        self._input = product.part(self._call.facts)
        self._jobs = [self._job(old, new) for old, new in ((here, there), (there, here))]
        self._weights, self._turn = weights, 0

    def _job(self, old: Sequence[Tensor], new: Sequence[Tensor]) -> Job:
        """The step from one set of states to the other."""
        names = self._call.program.cell.state
        own = {f"{name}_0": v.data_ptr() for name, v in zip(names, old, strict=True)}
        own |= {f"{name}_rows": v.data_ptr() for name, v in zip(names, new, strict=True)}
        return self._call.loop(0, len(new[0]), **own)

    @property
    def states(self) -> Sequence[Tensor]:
        """The states after the last step, (N, W) each."""
        return self._sets[self._turn]

    def run(self, x: Tensor) -> Tensor:
        """One step from x (N, D), contiguous; returns the output, (N, W), which the step after the next overwrites."""
        self._input.words[0] = x.data_ptr()
        self._input()
        self._jobs[self._turn]()
        self._turn = 1 - self._turn
        return self._sets[self._turn][0]
