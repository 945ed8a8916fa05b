"""One step again and again at the least cost: addresses are written down once, weights are packed once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.engines.numba_cpu import dense
from glassgate.engines.numba_cpu.kernel import Inputs, Kept, prepare


class Step:
    """A kernel of one step whose states go to and fro between two sets of buffers.

    Args:
        inputs: one direction; `initial` holds the first states and becomes one of the two sets.
    """

    def __init__(self, inputs: Inputs) -> None:
        sums, width = len(inputs.trace.ih), inputs.hidden_size
        ih = inputs.data.new_empty(len(inputs.data), sums * width)
        here, there = inputs.initial, [torch.empty_like(v) for v in inputs.initial]
        self._sets: list[Sequence[Tensor]] = [here, there]
        calls = [
            prepare(inputs._replace(initial=a), Kept(ih, b, None, None, None), None, False)
            for a, b in ((here, there), (there, here))
        ]
        weights = calls[0].input_panels(turned=False)
        for panels in (weights, *calls[0].panels, *calls[1].panels):
            for work in panels.work:
                work.part(0, 1)()
        self._input = dense.multiply(inputs.data, weights, sums, width, ih).part(0, 1)
        self._jobs = [call.job(0, len(ih)) for call in calls]
        self._turn = 0

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
