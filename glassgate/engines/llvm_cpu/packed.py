"""Layers with fixed weights, which are packed once: calls with whole sequences, and single steps of a stream."""

import threading
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.backend import Signature
from glassgate.engines.contract import Direction, Recording, Result, Steps
from glassgate.engines.fixed_weights import NativeSteps
from glassgate.engines.llvm_cpu import small_tasks
from glassgate.engines.llvm_cpu.costs import COSTS
from glassgate.engines.llvm_cpu.entry import Entry
from glassgate.engines.llvm_cpu.loops.batch import batch_layout
from glassgate.engines.llvm_cpu.partition import one_thread_partition
from glassgate.engines.llvm_cpu.passes import ForwardPass, cached_forward_pass
from glassgate.engines.llvm_cpu.prepared import PreparedPasses
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.sizes import Arithmetic, KernelSizes
from glassgate.engines.llvm_cpu.tasks import Launch, join_launches
from glassgate.engines.llvm_cpu.workspace import align_up
from glassgate.engines.memory import empty, first_rows, readable, to_contiguous
from glassgate.engines.plan import Plan, plan_of

MAX_FEW_INPUTS = 4
"""The largest input size with `KernelSizes.has_few_inputs`."""


class BoundSteps(NamedTuple):
    """A number of steps of one layer as native code.

    Attributes:
        launches: the machine code, in order.
        input_slots: the indices of the arguments that each call sets to the address of the input. The arguments of all
            launches follow each other.
        output: (steps * N, W) the memory of the output.
        owners: the objects that own other memory.
    """

    launches: Sequence[Launch]
    input_slots: Sequence[int]
    output: Tensor
    owners: Sequence[object]


class Steppable(Protocol):
    """One direction of a layer with fixed weights, as part of a stack that runs step by step."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the input, the output and the states."""

    def bound_steps(self, steps: int, N: int, x: Tensor, states: Sequence[Tensor]) -> BoundSteps:
        """Bind a number of steps of N sequences to memory. The final states overwrite the initial ones.

        Args:
            steps: the number of steps.
            N: the number of sequences.
            x: (steps * N, D) the input; empty if each call sets its address.
            states: the states, (N, W) each.
        """


class PackedDirection:
    """One direction of a layer. Its fixed weights are packed at the first call and shared by all threads.

    Args:
        direction: the cell and its contiguous weights, which are not copied. All weights that are not quantised have
            the same floating-point dtype.
        arithmetic: the arithmetic of the matrix products in the loop.
        input_arithmetic: the arithmetic of the input GEMM, if it differs.
        scales: the scales (rows,) of each quantised matrix, by name.
    """

    def __init__(
        self,
        direction: Direction,
        arithmetic: Arithmetic,
        input_arithmetic: Arithmetic | None = None,
        scales: Weights | None = None,
    ) -> None:
        self._direction, self._scales = direction, scales or {}
        self._arithmetic, self._input_arithmetic = arithmetic, input_arithmetic
        self._lock = threading.Lock()
        self._packed: dict[object, list[Tensor]] = {}
        """The packed weights, by processor and by whether calls are recorded."""

    @property
    def weights(self) -> list[Tensor]:
        """The parameters in the order of the plan."""
        return list(self._direction.weights.values())

    def plan(self, restarts: bool = False, record: bool = False) -> Plan:
        """Return the plan of a call.

        Args:
            restarts: whether the call passes separate states for resets.
            record: whether the call also returns the gates.
        """
        states = self._direction.initial
        return plan_of(self._direction._replace(restart=states if restarts else ()), COSTS, record)

    def sizes(self, N: int) -> KernelSizes:
        """Return the sizes of a call with N sequences."""
        weights, bits = self._direction.weights, 64 if self.dtype is torch.float64 else 32
        rows, D = weights["weight_ih"].shape
        H = rows // len(self._direction.cell.gates)
        P = weights["weight_hr"].shape[0] if "weight_hr" in weights else H
        sizes = KernelSizes(N, D, H, P, bits, self._arithmetic, self._input_arithmetic)
        is_full = sizes.effective_input_arithmetic is Arithmetic.FULL
        has_few_inputs = 0 < D <= MAX_FEW_INPUTS and self._direction.cell.heads == 1 and is_full
        return sizes._replace(has_few_inputs=has_few_inputs)

    def packed_weights(self, plan: Plan, N: int) -> list[Tensor]:
        """Return the packed weights for calls of this plan with N sequences. The first call packs them."""
        forward = self.forward_pass(plan, N)
        kernel_plan = forward.kernel_plans[0]
        key = kernel_plan.processor, plan.record
        with self._lock:
            if key not in self._packed:
                executable = forward.executable(batch_layout(None, N, N), one_thread_partition(1))
                (memory,) = executable.pack([0, 0, *map(Tensor.data_ptr, self.weights)])
                for matrix in kernel_plan.quantised_matrices:
                    address = align_up(memory.data_ptr()) + executable.packed_offset(matrix.start)
                    matrix.write(address, self._direction.weights[matrix.name], self._scales[matrix.name])
                self._packed[key] = [memory]
            return self._packed[key]

    @property
    def has_products(self) -> bool:
        """Whether the cell has matrix products."""
        trace = self.plan().trace
        return bool(trace.ih or trace.hh_only or trace.shared or "weight_hr" in self._direction.weights)

    def forward_pass(self, plan: Plan, N: int) -> ForwardPass:
        """Return the forward pass of this direction for N sequences."""
        return _forward_pass([plan], [self.sizes(N)], self.dtype, all_states=False)

    def bound_steps(self, steps: int, N: int, x: Tensor, states: Sequence[Tensor]) -> BoundSteps:
        """See `Steppable.bound_steps`."""
        plan, layout = self.plan(), batch_layout(None, steps * N, N)
        forward, packed = self.forward_pass(plan, N), self.packed_weights(plan, N)
        output = empty((layout.rows, forward.sizes[0].P), self.dtype)
        addresses = [0, x.data_ptr(), *map(Tensor.data_ptr, (*self.weights, *states, output, *states))]
        executable = forward.executable(layout, one_thread_partition(1))
        bound = executable.bound_pass(layout, addresses, packed, None if x.numel() else 1)
        return BoundSteps([bound.launch], bound.varying_slots, output, (self, layout, bound, *states))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the input, the output and the states."""
        return torch.float64 if torch.float64 in {v.dtype for v in self.weights} else torch.float32


class PackedLayer(NamedTuple):
    """A layer of one or two directions. It implements `FrozenDirections` for the CPU."""

    directions: Sequence[PackedDirection]

    @staticmethod
    def of(directions: Sequence[Direction], precision: str, scales: Sequence[Weights]) -> "PackedLayer":
        """Return the layer with these weights. The arguments are those of `frozen.freeze`."""
        if precision != "int8":
            arithmetic = Arithmetic.BFLOAT16 if precision == "bfloat16" else Arithmetic.FULL
            return PackedLayer([PackedDirection(direction, arithmetic) for direction in directions])
        packed = []
        for direction, direction_scales in zip(directions, scales, strict=True):
            input_arithmetic = Arithmetic.INTEGERS if "weight_ih" in direction_scales else Arithmetic.FULL
            arithmetic = Arithmetic.INTEGERS if direction_scales.keys() - {"weight_ih"} else Arithmetic.FULL
            packed.append(PackedDirection(direction, arithmetic, input_arithmetic, direction_scales))
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
        forward = _forward_pass(plans, [direction.sizes(N) for direction in directions], dtype, all_states)
        packed = [direction.packed_weights(plan, N)[0] for plan, direction in zip(plans, directions, strict=True)]
        flat, recorded = forward.allocate_and_run(layout, tensors, steps[0].resets, S, packed)
        remaining = iter(flat)
        results = []
        for state_count, final_count, _ in forward.counts:
            results.append(Result(tuple(islice(remaining, state_count)), tuple(islice(remaining, final_count))))
        for recording, values in zip(recordings or (), recorded, strict=bool(recordings)):
            recording.values = values
        return results

    def prepare(self, steps: int, N: int, signature: Signature, has_restart: bool = False) -> PreparedPasses:
        """See `FrozenDirections.prepare`."""
        directions = self.directions
        plans = tuple([direction.plan(has_restart, signature.record) for direction in directions])
        sizes = tuple([direction.sizes(N) for direction in directions])
        packed = [direction.packed_weights(plan, N)[0] for plan, direction in zip(plans, directions, strict=True)]
        layout = batch_layout(None, steps * N, N)
        return PreparedPasses(plans, sizes, layout, directions[0].dtype, signature, packed)

    def stepper(
        self, layers: "Sequence[PackedLayer]", initial: Sequence[tuple[Tensor, ...]], residual: Sequence[bool]
    ) -> "NativeStepper":
        """See `FrozenDirections.stepper`."""
        return NativeStepper([layer.directions[0] for layer in layers], initial, residual)


def _forward_pass(
    plans: Sequence[Plan], sizes: Sequence[KernelSizes], dtype: torch.dtype, all_states: bool
) -> ForwardPass:
    return cached_forward_pass(tuple(plans), tuple(sizes), dtype, all_states, False, (False,) * len(plans), host())


class NativeStepper:
    """`Stepper` for the CPU. One native call runs all layers. The final states overwrite the initial states.

    Args:
        directions: one per layer.
        initial, residual: as in `FrozenDirections.stepper`.
    """

    def __init__(
        self, directions: Sequence[Steppable], initial: Sequence[Sequence[Tensor]], residual: Sequence[bool]
    ) -> None:
        self.states, self._directions, self._residual = initial, directions, residual
        self._one_step = self.native(1)

    def native(self, steps: int) -> NativeSteps:
        """See `engines.fixed_weights.Stepper.native`."""
        N, dtype = len(self.states[0][0]), self._directions[0].dtype
        x, owners, launches, input_slots = empty((0,), dtype), list[Any](), list[Launch](), list[int]()
        for k, direction in enumerate(self._directions):
            bound = direction.bound_steps(steps, N, x, self.states[k])
            input_slots += bound.input_slots if k == 0 else []
            launches += bound.launches
            layer_input, x = x, bound.output
            if self._residual[k]:
                x = empty(bound.output.shape, dtype)
                addresses = x.data_ptr(), bound.output.data_ptr(), layer_input.data_ptr()
                launches.append(small_tasks.add(*addresses, x.numel(), 8 * x.element_size()).whole({}))
            owners += [bound, x]
        joined = join_launches(launches)
        # The arguments of the joined launches follow those of the launch that runs them.
        offset = len(joined.arguments) - sum(len(launch.arguments) for launch in launches) if len(launches) > 1 else 0
        entry = Entry(joined, [offset + slot for slot in input_slots])
        return NativeSteps(entry.call, entry.run, x.view(steps, N, -1), (entry, *owners))

    def __call__(self, x: Tensor) -> Tensor:
        """See `Stepper`."""
        (x,) = readable([x])
        self._one_step.run(x.data_ptr())
        return self._one_step.output[0]
