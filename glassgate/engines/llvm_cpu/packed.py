"""Layers whose weights are packed once: calls with whole sequences, recordings, and single steps."""

import threading
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.backend import NativeSteps
from glassgate.engines.contract import Direction, Recording, Result, Steps
from glassgate.engines.llvm_cpu import small_tasks
from glassgate.engines.llvm_cpu.costs import COSTS
from glassgate.engines.llvm_cpu.entry import Entry
from glassgate.engines.llvm_cpu.executable import BoundPass, RepeatedPass
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout, batch_layout
from glassgate.engines.llvm_cpu.partition import Partition, fits_one_thread
from glassgate.engines.llvm_cpu.passes import ForwardPass, cached_forward_pass
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.sizes import INTEGERS, KernelSizes
from glassgate.engines.llvm_cpu.tasks import Launch, join_launches
from glassgate.engines.llvm_cpu.workspace import aligned
from glassgate.engines.memory import empty, first_rows, to_contiguous
from glassgate.engines.plan import Plan, plan_of

ALONE = Partition(1, (1,))
"""The division of a pass of one direction that runs on one thread."""
MOST_INPUTS = 4
"""Up to this input size, each step computes its own input product, without a GEMM before the loop."""


class PackedDirection:
    """One direction of a layer. Its weights are packed at the first call and shared by all threads.

    Args:
        direction: the cell and its contiguous weights, all of one floating-point dtype. They are not copied.
        terms: the precision of the matrix products in the loop, see `KernelSizes.terms`.
        input_terms: the precision of the input product.
        scales: the scales (rows,) of each quantised matrix, by name.
    """

    def __init__(
        self, direction: Direction, terms: int, input_terms: int | None = None, scales: Weights | None = None
    ) -> None:
        self._direction, self._terms, self._input_terms, self._scales = direction, terms, input_terms, scales or {}
        self._lock = threading.Lock()
        self._packed: dict[object, list[Tensor]] = {}

    @property
    def weights(self) -> list[Tensor]:
        """The parameters in the order of the plan."""
        return list(self._direction.weights.values())

    def plan(self, restarts: bool = False, record: bool = False) -> Plan:
        """The plan of calls.

        Args:
            restarts: whether resets have separate initial states.
            record: whether the call also returns the gates.
        """
        states = self._direction.initial
        return plan_of(self._direction._replace(restart=states if restarts else ()), COSTS, record)

    def sizes(self, N: int) -> KernelSizes:
        """The sizes of calls with N sequences."""
        weights = self._direction.weights
        matrix, bits = weights["weight_ih"], 64 if self.dtype is torch.float64 else 32
        H = matrix.shape[0] // len(self._direction.cell.gates)
        P, D = weights["weight_hr"].shape[0] if "weight_hr" in weights else H, matrix.shape[1]
        sizes = KernelSizes(N, D, H, P, bits, self._terms, self._input_terms)
        few_inputs = 0 < D <= MOST_INPUTS and self._direction.cell.heads == 1 and not sizes.terms_of_input
        return sizes._replace(has_few_inputs=few_inputs)

    def packed(self, plan: Plan, N: int) -> list[Tensor]:
        """The packed weights for calls of this plan with N sequences."""
        run = self.forward(plan, N)
        kernel = run.kernel_plans[0]
        key = kernel.processor, plan.record
        with self._lock:
            if key not in self._packed:
                executable = run.executable(batch_layout(None, N, N), ALONE)
                (memory,) = executable.pack([0, 0, *map(Tensor.data_ptr, self.weights)])
                for matrix in kernel.quantised_matrices:
                    at = aligned(memory.data_ptr()) + executable.packed_offset(matrix.start)
                    matrix.write(at, self._direction.weights[matrix.name], self._scales[matrix.name])
                self._packed[key] = [memory]
            return self._packed[key]

    @property
    def multiplies(self) -> bool:
        """Whether the cell has matrix products."""
        trace = self.plan().trace
        return bool(trace.ih or trace.hh_only or trace.shared or "weight_hr" in self._direction.weights)

    def forward(self, plan: Plan, N: int, all_states: bool = False) -> ForwardPass:
        """The forward pass of this direction only."""
        return _forward([plan], [self.sizes(N)], self.dtype, all_states)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the input, the output and the states."""
        return torch.float64 if torch.float64 in {v.dtype for v in self.weights} else torch.float32


class PackedLayer(NamedTuple):
    """A layer of one or two directions. It implements `FrozenDirections` for the CPU."""

    directions: Sequence[PackedDirection]

    @staticmethod
    def of(directions: Sequence[Direction], precision: str, scales: Sequence[Weights]) -> "PackedLayer":
        """The layer with these weights; the arguments are those of `frozen.freeze`."""
        if precision != "int8":
            return PackedLayer([PackedDirection(direction, int(precision == "bfloat16")) for direction in directions])
        packed = []
        for direction, own in zip(directions, scales, strict=True):
            of_input = INTEGERS * ("weight_ih" in own)
            of_loop = INTEGERS * bool(own.keys() - {"weight_ih"})
            packed.append(PackedDirection(direction, of_loop, of_input, own))
        return PackedLayer(packed)

    def run(
        self,
        steps: Sequence[Steps],
        initial: Sequence[tuple[Tensor, ...]],
        restart: Sequence[tuple[Tensor, ...]] | None = None,
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        """See `FrozenDirections.run`."""
        directions = self.directions
        if len(directions) == 2 and steps[0].data is not steps[1].data:
            return [
                result
                for k in (slice(0, 1), slice(1, 2))
                for result in PackedLayer(directions[k]).run(
                    steps[k], initial[k], restart and restart[k], all_states, recordings and recordings[k]
                )
            ]
        (S, _), N, dtype = steps[0].data.shape, len(initial[0][0]), steps[0].data.dtype
        layout = batch_layout(steps[0].batch_sizes, S, N)
        plans = [direction.plan(restart is not None, recordings is not None) for direction in directions]
        tensors = [*to_contiguous([first_rows(steps[0].data, layout.rows)], dtype)]
        for k, direction in enumerate(directions):
            tensors += [*direction.weights, *to_contiguous([*initial[k], *(restart[k] if restart else ())], dtype)]
        whole = _forward(plans, [direction.sizes(N) for direction in directions], dtype, all_states)
        packed = [direction.packed(plan, N)[0] for plan, direction in zip(plans, directions, strict=True)]
        flat, recorded = whole.allocate_and_run(layout, tensors, steps[0].resets, S, packed)
        produced = iter(flat)
        results = []
        for states, final, _ in whole.counts:
            results.append(Result(tuple(islice(produced, states)), tuple(islice(produced, final))))
        for recording, values in zip(recordings or (), recorded, strict=bool(recordings)):
            recording.values = values
        return results

    def passes(self, steps: int, N: int) -> "list[PackedPass | RepeatedPass]":
        """See `FrozenDirections.passes`."""
        return [packed_pass(direction, steps, N) for direction in self.directions]

    def stepper(
        self, layers: "Sequence[PackedLayer]", initial: Sequence[tuple[Tensor, ...]], residual: bool
    ) -> "NativeStepper":
        """See `FrozenDirections.stepper`."""
        return NativeStepper([layer.directions[0] for layer in layers], initial, residual)


def _forward(plans: Sequence[Plan], sizes: Sequence[KernelSizes], dtype: torch.dtype, all_states: bool) -> ForwardPass:
    return cached_forward_pass(tuple(plans), tuple(sizes), dtype, all_states, False, (False,) * len(plans), host())


class PackedPass(NamedTuple):
    """`backend.PackedPass` for passes that several threads may run."""

    forward: ForwardPass
    layout: BatchLayout
    packed: Sequence[Tensor]
    weights: Sequence[Tensor]

    def run(self, data: int, others: Sequence[int]) -> None:
        """See `backend.PackedPass.run`."""
        addresses = [0, data, *map(Tensor.data_ptr, self.weights), *others]
        self.forward.executable(self.layout).run(self.layout, addresses, self.packed)


def packed_pass(direction: PackedDirection, steps: int, N: int) -> PackedPass | RepeatedPass:
    """The forward pass of one direction for N sequences of equal length. Calls pass the addresses of tensors."""
    plan = direction.plan()
    whole, layout = direction.forward(plan, N), batch_layout(None, steps * N, N)
    packed, weights = direction.packed(plan, N), direction.weights
    if not fits_one_thread(whole.kernel_plans, layout):
        return PackedPass(whole, layout, packed, weights)
    # One thread always runs so small a pass. A `RepeatedPass` takes less time per call than a `PackedPass`.
    addresses = [0, 0, *map(Tensor.data_ptr, weights)]
    return whole.executable(layout, ALONE).repeated_pass(layout, addresses, packed, weights)


class NativeStepper:
    """`Stepper` for the CPU: a single native call. The final states overwrite the initial states.

    Args:
        directions: one per layer.
        initial, residual: as in `FrozenDirections.stepper`.
    """

    def __init__(
        self, directions: Sequence[PackedDirection], initial: Sequence[Sequence[Tensor]], residual: bool
    ) -> None:
        self.states, self._directions, self._residual = initial, directions, residual
        self._one = self.native(1)

    def native(self, steps: int) -> NativeSteps:
        """See `Stepper.native`."""
        N, dtype = len(self.states[0][0]), self._directions[0].dtype
        layout, alive, launches = batch_layout(None, steps * N, N), list[Any](), list[Launch]()
        x = empty((0,), dtype)
        for k, direction in enumerate(self._directions):
            bound, output = _bound(direction, layout, x, self.states[k])
            if k == 0:
                first = bound.varying_slots
            launches.append(bound.launch)
            below, x = x, output
            if self._residual and k > 0 and below.shape == x.shape:
                x = empty(output.shape, dtype)
                added = x.data_ptr(), output.data_ptr(), below.data_ptr(), x.numel(), 8 * x.element_size()
                launches.append(small_tasks.add(*added).whole({}))
            alive += [direction, bound, output, x]
        whole = join_launches(launches)
        before = len(whole.arguments) - sum(len(launch.arguments) for launch in launches) if len(launches) > 1 else 0
        entry = Entry(whole, [before + place for place in first])
        return NativeSteps(entry.call, x.view(steps, N, -1), (entry, layout, *alive))

    def __call__(self, x: Tensor) -> Tensor:
        """See `Stepper`."""
        self._one.call(x.data_ptr())
        return self._one.output[0]


def _bound(
    direction: PackedDirection, layout: BatchLayout, x: Tensor, states: Sequence[Tensor]
) -> tuple[BoundPass, Tensor]:
    """The pass of a layer on x, and its output. If x is empty, each call sets the address of x."""
    plan, N = direction.plan(), layout.N
    whole, packed = direction.forward(plan, N), direction.packed(plan, N)
    output = empty((layout.rows, whole.sizes[0].P), direction.dtype)
    addresses = [0, x.data_ptr(), *map(Tensor.data_ptr, (*direction.weights, *states, output, *states))]
    free = None if x.numel() else 1
    return whole.executable(layout, ALONE).bound_pass(layout, addresses, packed, free), output
