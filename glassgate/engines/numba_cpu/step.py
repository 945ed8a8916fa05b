"""One step again and again at the least cost: addresses are written down once, weights are packed once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.engines.lowering.batch import batch_layout
from glassgate.engines.numba_cpu.bind import Call
from glassgate.engines.numba_cpu.plan import forward_plan
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.tasks import Series, Template
from glassgate.engines.numba_cpu.workspace import Workspace
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
        kernel = forward_plan(plan, sizes, False, True, False, False, host())
        x = initial[0].new_empty(sizes.N, sizes.D)
        here, there = initial, [torch.empty_like(v) for v in initial]
        self._sets: list[Sequence[Tensor]] = [here, there]
        layout = batch_layout(None, sizes.N, sizes.N)
        final = [torch.empty_like(v) for v in initial]
        self._call = Call(kernel, layout, Workspace(own=True), [x, *weights, *here, *there, *final])
        packing, *product = kernel.rounds_before
        packing.all(self._call.bindings)()
        whole = Series([*product, kernel.loop])
        self._steps = [self._launch(whole, old, new) for old, new in ((here, there), (there, here))]
        self._weights, self._turn = weights, 0

    def _launch(self, step: Series, old: Sequence[Tensor], new: Sequence[Tensor]) -> Template:
        """The step from one set of states to the other, of an input that is given."""
        kernel = self._call.plan
        own = {address: v.data_ptr() for address, v in zip(kernel.initial, old, strict=True)}
        own |= {address: v.data_ptr() for address, v in zip(kernel.states, new, strict=True)}
        return step.prepared(self._call.for_one(own), {kernel.tensors.addresses[0]: (0, 0)})

    @property
    def states(self) -> Sequence[Tensor]:
        """The states after the last step, (N, W) each."""
        return self._sets[self._turn]

    def run(self, x: Tensor) -> Tensor:
        """One step from x (N, D), contiguous; returns the output, (N, W), which the step after the next overwrites."""
        self._steps[self._turn].filled((x.data_ptr(),))()
        self._turn = 1 - self._turn
        return self._sets[self._turn][0]
