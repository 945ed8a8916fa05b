"""Directions whose weights are packed once: their sequences, recordings and single steps read the packed form."""

import threading
from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from glassgate.engines.contract import Direction, Recording, Result, Steps
from glassgate.engines.lowering.batch import batch_layout
from glassgate.engines.memory import computable, first_rows, unwritten
from glassgate.engines.numba_cpu import partition
from glassgate.engines.numba_cpu.arguments import RESETS, Argument
from glassgate.engines.numba_cpu.bind import Call
from glassgate.engines.numba_cpu.costs import COSTS
from glassgate.engines.numba_cpu.plan import Forward, forward_plan
from glassgate.engines.numba_cpu.prepared import Pass
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.tasks import Series
from glassgate.engines.numba_cpu.workspace import Workspace
from glassgate.engines.plan import Plan, Sizes, plan_of

MOST_KERNELS = 256
"""Batch sizes whose plans a direction keeps."""


class PackedDirection:
    """One direction of a layer. Its weights are packed at the first call and shared by all threads.

    Args:
        direction: cell and weights, (contiguous, of one floating-point type); the tensors are read, not copied.
        terms: how matrix products are computed, see `Sizes.terms`.
    """

    def __init__(self, direction: Direction, terms: int) -> None:
        self._direction, self._terms = direction, terms
        self._lock = threading.Lock()
        self._packed: dict[object, dict[Argument, int]] = {}
        self._memory: list[Workspace] = []
        self._kernels: dict[object, Forward] = {}

    @property
    def weights(self) -> Sequence[Tensor]:
        """The parameters in the order of the plan."""
        return list(self._direction.weights.values())

    def kernel(self, N: int, every_state: bool, restarts: bool = False, record: bool = False) -> Forward:
        """The plan of calls with N sequences, whose weights are already packed.

        Args:
            N: sequences in a batch.
            every_state: whether the caller provides memory for all states at all steps, not only for the output.
            restarts: whether resets have initial states of their own.
            record: whether the gates are results too.
        """
        key = N, every_state, restarts, record
        found = self._kernels.get(key)
        if found is not None:
            return found
        with self._lock:
            if len(self._kernels) >= MOST_KERNELS:
                self._kernels.clear()
            plan = self._plan(restarts, record)
            whole = forward_plan(plan, self._sizes(plan, N), False, every_state, False, False, host())
            found = self._kernels[key] = _resident(whole, self._addresses(whole))
        return found

    def _plan(self, restarts: bool, record: bool) -> Plan:
        states = self._direction.initial
        return plan_of(self._direction._replace(restart=states if restarts else ()), COSTS, record)

    def _sizes(self, plan: Plan, N: int) -> Sizes:
        weights = self._direction.weights
        matrix, bits = weights["weight_ih"], 8 * weights["weight_ih"].element_size()
        H = matrix.shape[0] // len(self._direction.cell.gates)
        P = weights["weight_hr"].shape[0] if "weight_hr" in weights else H
        return Sizes(N, matrix.shape[1], H, P, bits, self._terms)

    def _addresses(self, plan: Forward) -> dict[Argument, int]:
        """Where this plan finds the parameters and their packed form, which is computed once."""
        key = plan.processor, plan.plan.record
        if key not in self._packed:
            weights = plan.tensors.addresses[1 : 1 + len(plan.plan.weights)]
            known = dict(zip(weights, map(Tensor.data_ptr, self.weights), strict=True))
            memory = Workspace(own=True)
            self._memory.append(memory)
            known |= {a: memory.take(size) for a, size in plan.fixed.items() if a not in plan.states}
            if plan.before[0]:
                Series(plan.before[0]).all(plan.bindings | known)()
            self._packed[key] = known
        return self._packed[key]


def _resident(plan: Forward, addresses: dict[Argument, int]) -> Forward:
    """The plan without the packing of its weights, which are at these addresses."""
    found = copy(plan)
    for name in ("rounds_before", "whole"):
        found.__dict__.pop(name, None)
    found.before = [[], *plan.before[1:]]
    found.fixed = {a: size for a, size in plan.fixed.items() if a not in addresses}
    found.bindings = plan.bindings | addresses
    found.tensors = plan.memory([a for a in plan.tensors.addresses if a not in addresses])
    return found


def run(
    steps: Sequence[Steps],
    directions: Sequence[PackedDirection],
    initial: Sequence[tuple[Tensor, ...]],
    restart: Sequence[tuple[Tensor, ...]] | None = None,
    all_states: bool = False,
    recordings: Sequence[Recording] | None = None,
) -> list[Result]:
    """One layer, all of its directions at once.

    Args:
        steps: the input of each direction, in the type of the weights; they differ in their data only.
        directions: one or two.
        initial: of each direction, one (N, W) per state.
        restart: of each direction, the states that resets fall back to; `initial` where not given.
        all_states: whether to return all states at every step, not only the output.
        recordings: one per direction, filled with the gates.
    """
    (S, _), N = steps[0].data.shape, len(initial[0][0])
    time = batch_layout(steps[0].batch_sizes, S, N)
    workspace, calls, results = Workspace(), [], []
    for k, direction in enumerate(directions):
        kernel = direction.kernel(N, all_states, restart is not None, recordings is not None)
        data = first_rows(steps[k].data, time.rows)
        tensors = computable([data, *initial[k], *(restart[k] if restart else ())], data.dtype)
        widths = list(kernel.plan.of_states(kernel.sizes).values())
        states = [unwritten(S, n, time.rows, data) for n in (widths if all_states else widths[:1])]
        final = [data.new_empty(N, n) for n in widths]
        call = Call(kernel, time, workspace, [*tensors, *states, *final], steps[0].resets)
        if recordings:
            names = kernel.plan.trace.recorded
            shown = [unwritten(S, kernel.sizes.H, time.rows, data) for _ in names]
            call.bind(kernel.recorded, shown)
            recordings[k].values = dict(zip(names, shown, strict=True))
        calls.append(call)
        results.append(Result(tuple(states), tuple(final)))
    partition.run(calls)
    return results


def prepared(direction: PackedDirection, steps: int, N: int, resets: bool) -> Pass | None:
    """The pass of calls with N sequences of equal length; None if they need more than one core or more memory.

    It takes the addresses of the input, the initial states, the mask of resets if any, the output and the final states.
    """
    kernel = direction.kernel(N, every_state=False)
    free = [*kernel.tensors.addresses]
    if resets:
        free.insert(1 + len(kernel.initial), RESETS)
    found = Pass(kernel, steps, free)
    return found if found.fits else None


class Step:
    """A kernel of one step whose states alternate between two sets of buffers.

    Args:
        direction: the direction.
        initial: (N, W) per state, the first ones; they become one of the two sets.
    """

    def __init__(self, direction: PackedDirection, initial: Sequence[Tensor]) -> None:
        N = len(initial[0])
        kernel = direction.kernel(N, every_state=True)
        x = initial[0].new_empty(N, kernel.sizes.D)
        here, there = initial, [torch.empty_like(v) for v in initial]
        self._sets: list[Sequence[Tensor]] = [here, there]
        final = [torch.empty_like(v) for v in initial]
        call = Call(kernel, batch_layout(None, N, N), Workspace(own=True), [x, *here, *there, *final])
        whole = Series([*kernel.rounds_before[1:], kernel.loop])
        self._steps = []
        for old, new in ((here, there), (there, here)):
            own = {address: v.data_ptr() for address, v in zip(kernel.initial, old, strict=True)}
            own |= {address: v.data_ptr() for address, v in zip(kernel.states, new, strict=True)}
            self._steps.append(whole.prepared(call.for_one(own), {kernel.tensors.addresses[0]: (0, 0)}))
        self._alive, self._turn = (call, direction), 0

    @property
    def states(self) -> Sequence[Tensor]:
        """The states after the last step, (N, W) each; writing to them changes the next step."""
        return self._sets[self._turn]

    def __call__(self, x: Tensor) -> Tensor:
        """One step from x (N, D) to the output, (N, W), which the step after the next overwrites."""
        x = x.contiguous()
        self._steps[self._turn].filled((x.data_ptr(),))()
        self._turn = 1 - self._turn
        return self._sets[self._turn][0]
