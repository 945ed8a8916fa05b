"""Directions whose weights are packed once: their sequences, recordings and single steps read the packed form."""

import threading
from array import array
from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from glassgate.engines.contract import Direction, Recording, Result, Steps
from glassgate.engines.memory import computable, empty, first_rows
from glassgate.engines.numba_cpu.costs import COSTS
from glassgate.engines.numba_cpu.loops.batch import batch_layout
from glassgate.engines.numba_cpu.partition import Partition, partition
from glassgate.engines.numba_cpu.passes import ForwardPass, forward_pass
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.plan import Plan, Sizes, plan_of

ALONE = Partition(1, (1,))


class PackedDirection:
    """One direction of a layer. Its weights are packed at the first call and shared by all threads.

    Args:
        direction: cell and weights (contiguous, of one floating-point type); the tensors are read, not copied.
        terms: how matrix products are computed, see `Sizes.terms`.
    """

    def __init__(self, direction: Direction, terms: int) -> None:
        self._direction, self._terms = direction, terms
        self._lock = threading.Lock()
        self._packed: dict[object, list[Tensor]] = {}

    @property
    def weights(self) -> list[Tensor]:
        """The parameters in the order of the plan."""
        return list(self._direction.weights.values())

    def plan(self, restarts: bool = False, record: bool = False) -> Plan:
        """The plan of its calls.

        Args:
            restarts: whether resets have initial states of their own.
            record: whether the gates are results too.
        """
        states = self._direction.initial
        return plan_of(self._direction._replace(restart=states if restarts else ()), COSTS, record)

    def sizes(self, N: int) -> Sizes:
        """The sizes of calls with N sequences."""
        weights = self._direction.weights
        matrix, bits = weights["weight_ih"], 8 * weights["weight_ih"].element_size()
        H = matrix.shape[0] // len(self._direction.cell.gates)
        P = weights["weight_hr"].shape[0] if "weight_hr" in weights else H
        return Sizes(N, matrix.shape[1], H, P, bits, self._terms)

    def packed(self, plan: Plan, N: int) -> list[Tensor]:
        """The packed weights for such calls."""
        run = self.forward(plan, N)
        key = run.kernels[0].processor, plan.record
        with self._lock:
            if key not in self._packed:
                addresses = [0, 0, *map(Tensor.data_ptr, self.weights)]
                self._packed[key] = run.executable(ALONE).pack(addresses)
            return self._packed[key]

    def forward(self, plan: Plan, N: int, every_state: bool = False) -> ForwardPass:
        """The pass of this direction alone."""
        return _forward([plan], [self.sizes(N)], self.weights[0].dtype, every_state)


def _forward(plans: Sequence[Plan], sizes: Sequence[Sizes], dtype: torch.dtype, every_state: bool) -> ForwardPass:
    return forward_pass(tuple(plans), tuple(sizes), dtype, every_state, False, (False,) * len(plans), host())


def run(
    steps: Sequence[Steps],
    directions: Sequence[PackedDirection],
    initial: Sequence[tuple[Tensor, ...]],
    restart: Sequence[tuple[Tensor, ...]] | None = None,
    all_states: bool = False,
    recordings: Sequence[Recording] | None = None,
) -> list[Result]:
    """One layer.

    Args:
        steps: the input of each direction, in the type of the weights; they differ in their data only.
        directions: one or two.
        initial: of each direction, one (N, W) per state.
        restart: of each direction, the states that resets fall back to; `initial` where not given.
        all_states: whether to return all states at every step, not only the output.
        recordings: one per direction, filled with the gates.
    """
    if len(directions) == 2 and steps[0].data is not steps[1].data:
        every = [
            run(steps[k], directions[k], initial[k], restart and restart[k], all_states, recordings and recordings[k])
            for k in (slice(0, 1), slice(1, 2))
        ]
        return [result for results in every for result in results]
    (S, _), N = steps[0].data.shape, len(initial[0][0])
    layout = batch_layout(steps[0].batch_sizes, S, N)
    plans = [direction.plan(restart is not None, recordings is not None) for direction in directions]
    tensors = [first_rows(steps[0].data, layout.rows)]
    for k, direction in enumerate(directions):
        tensors += [*direction.weights, *initial[k], *(restart[k] if restart else ())]
    dtype = tensors[0].dtype
    whole = _forward(plans, [direction.sizes(N) for direction in directions], dtype, all_states)
    packed = [direction.packed(plan, N)[0] for plan, direction in zip(plans, directions, strict=True)]
    found = iter(whole.results(layout, computable(tensors, dtype), steps[0].resets, whole.memory(S), S, packed))
    results = []
    for k, (states, final, _, shown) in enumerate(whole.counts):
        results.append(Result(tuple(islice(found, states)), tuple(islice(found, final))))
        if recordings:
            recordings[k].values = dict(zip(plans[k].trace.recorded, islice(found, shown), strict=True))
    return results


class PackedPass:
    """One direction's pass for N sequences of equal length, given the addresses of its tensors."""

    def __init__(self, direction: PackedDirection, steps: int, N: int) -> None:
        plan = direction.plan()
        self._pass, self._layout = direction.forward(plan, N), batch_layout(None, steps * N, N)
        self._packed, self._alive = direction.packed(plan, N), direction.weights
        self._weights = [*map(Tensor.data_ptr, self._alive)]

    def run(self, data: int, states: Sequence[int], written: Sequence[int]) -> None:
        """Run it.

        Args:
            data: the address of the input.
            states: those of the initial states.
            written: those of the output and the final states.
        """
        found = self._pass.executable(partition(self._pass.kernels, self._layout))
        found.run(self._layout, [0, data, *self._weights, *states, *written], self._packed)


class Step:
    """A pass of one step whose final states are written over its initial ones.

    Args:
        direction: the direction.
        initial: (N, W) per state, the states before the first step.

    Attributes:
        states: (N, W) each, the states after the last step; writing to them changes the next step.
    """

    def __init__(self, direction: PackedDirection, initial: Sequence[Tensor]) -> None:
        plan, N = direction.plan(), len(initial[0])
        whole = direction.forward(plan, N)
        self._layout, self._executable = batch_layout(None, N, N), whole.executable(ALONE)
        self.states, self._output = initial, empty((N, whole.sizes[0].P), initial[0].dtype)
        self._packed, self._alive = direction.packed(plan, N), direction.weights
        tensors = *self._alive, *initial, self._output, *initial
        self._addresses = array("q", (0, 0, *map(Tensor.data_ptr, tensors)))

    def __call__(self, x: Tensor) -> Tensor:
        """One step from x (N, D) to the output, (N, W), which the next step overwrites."""
        x = x.contiguous()
        self._addresses[1] = x.data_ptr()
        self._executable.run(self._layout, self._addresses, self._packed)
        return self._output
