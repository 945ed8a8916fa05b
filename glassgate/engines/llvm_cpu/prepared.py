"""The passes of a layer for one call signature. Tensors have the shapes and dtypes of the user's call."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, islice
from operator import call, is_
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from glassgate.engines.backend import PackedLengths, PlannedPasses, Signature, TensorOrNone
from glassgate.engines.contract import Recording
from glassgate.engines.llvm_cpu.bound import Template
from glassgate.engines.llvm_cpu.by_address import run_by_address
from glassgate.engines.llvm_cpu.executable import MAX_LAYOUTS, Executable
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.llvm_cpu.partition import fits_one_thread
from glassgate.engines.llvm_cpu.passes import BackwardPass, LayerPass, Shape, cached_backward_pass, cached_forward_pass
from glassgate.engines.llvm_cpu.plan import have_few_rows
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.ragged import (
    Copies,
    CopyPlan,
    RaggedLayout,
    packed_layout,
    padded_layout,
    restore_rows,
    select_rows,
)
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from glassgate.engines.memory import LOW_ADDRESS, Matrices, allocator, empty, empty_like, in_memory, to_contiguous
from glassgate.engines.plan import Plan, needed_weights, results_by_direction

T = TypeVar("T")
Prepared = Executable | Template | None
"""See `LayerPass.prepare`."""


class _RaggedForward(NamedTuple):
    """The copies of a forward pass over ragged batches, the indices of the copied tensors and results, and the pass."""

    plan: CopyPlan
    gathered: Sequence[int]
    scattered: Sequence[int]
    prepared: Prepared


class _CopiedGradients(NamedTuple):
    """The gradients of a ragged batch that are copied. States are numbered as in `d_visible`, see `backward`.

    Attributes:
        plan: the copies.
        given: the states whose gradients are copied before the pass.
        zeros: the final states without a gradient, each with the index of its initial state among the tensors.
        results: the tensors whose gradients are copied after the pass, each with the state whose gradient the pass
            replaces by this one; the input comes first.
    """

    plan: CopyPlan
    given: Sequence[int]
    zeros: Sequence[tuple[int, int]]
    results: Sequence[tuple[int, int]]


class _Backward(NamedTuple):
    """A backward pass, and the gradients that are copied before and after it."""

    passes: BackwardPass
    prepared: Prepared
    copied: _CopiedGradients | None


_IS_NONE = partial(is_, None)


class PreparedPasses(PlannedPasses):
    """`backend.PreparedPasses` for the CPU: the forward pass for inputs of one shape, and its backward passes.

    Args:
        plans: the plan of each direction.
        sizes: the sizes of each direction.
        layout: the rows of each step.
        dtype: the dtype of the visible states and the final states.
        signature: the signature of the calls.
        packed: the packed weights of each direction; None if each call packs the weights.
    """

    def __init__(
        self,
        plans: tuple[Plan, ...],
        sizes: tuple[KernelSizes, ...],
        layout: BatchLayout,
        dtype: torch.dtype,
        signature: Signature,
        packed: Sequence[Tensor] | None = None,
    ) -> None:
        leading_shape, state_shapes, save, shared_initial, all_states, record, self.backend = signature
        self.plans, self._sizes, self._layout, rows = plans, sizes, layout, layout.rows
        self._packed, self._saves = packed, save
        few_rows = have_few_rows(rows, sizes) if packed is None else (False,) * len(sizes)
        self._forward = cached_forward_pass(plans, sizes, dtype, save or all_states, save, few_rows, host())
        # The calls of a session outlast changes of the number of threads.
        self.depends_on_threads = packed is None and not fits_one_thread(self._forward.kernel_plans, layout)
        self._prepared = self._forward.prepare(layout, packed) if self._is_fixed(self._forward) else None
        self._compute_dtype = torch.float64 if sizes[0].bits == 64 else torch.float32
        self._result_dtype, self._rows = dtype, rows
        self._backward_passes: dict[tuple[tuple[bool, ...], tuple[bool, ...]], _Backward] = {}
        """By the arguments of `_new_backward_pass`."""
        self._sequence_indices = [0]
        """The indices of a call's tensors that contain data of each sequence: the input and the initial states."""
        for plan, start in zip(plans, accumulate((plan.operand_count for plan in plans), initial=1), strict=False):
            first_state = start + len(plan.weights)
            self._sequence_indices += range(first_state, first_state + len(plan.cell.state))
        self._index_results(leading_shape, state_shapes, all_states)
        self._recorded_blocks = self._forward.recorded_blocks(rows) if record else []
        self.shapes = {0: (*leading_shape, sizes[0].D)} | dict(
            zip(self._sequence_indices[1:], chain.from_iterable([state_shapes] * len(plans)), strict=True)
        )
        self._sorted_indices = [0] if shared_initial else self._sequence_indices
        """The indices of the tensors that are sorted together with the sequences."""
        self._input_allocators = {k: allocator(shape, self._compute_dtype) for k, shape in self.shapes.items()}
        self._ragged_forward: dict[bool, _RaggedForward] = {}
        """The forward passes over padded sequences, and over packed rows (True)."""

    def _index_results(self, leading_shape: Shape, state_shapes: Sequence[Shape], all_states: bool) -> None:
        """Set the indices of returned and saved results, and the functions that allocate each result."""
        kernel_specs = self._forward.result_specs(self._rows, self._layout.N)
        user_specs, start = [*kernel_specs], 0
        visible_by_direction = list[list[int]]()
        finals, saved, kept = list[int](), list[int](), list[int]()
        for state_count, final_count, kept_count in self._forward.counts:
            end = start + state_count + final_count + kept_count
            indices = iter(range(start, end))
            states = [*islice(indices, state_count)]
            visible_by_direction.append(states if all_states else states[:1])
            finals += islice(indices, final_count)
            saved += states
            kept += indices
            start = end
        visible = [*chain.from_iterable(visible_by_direction)]
        for k in visible:
            (_, width), dtype = user_specs[k]
            user_specs[k] = (*leading_shape, width), dtype
        for k, shape in zip(finals, chain.from_iterable([state_shapes] * len(self.plans)), strict=True):
            user_specs[k] = shape, user_specs[k][1]
        self._state_counts = [
            (count, [None] * (len(plan.cell.state) - count))
            for count, plan in zip(map(len, visible_by_direction), self.plans, strict=True)
        ]
        """For each direction, the number of visible states, and None for each other state."""
        self.visible_count, self._returned, self._saved = len(visible), visible + finals, saved + kept
        self._kernel_allocators, self._user_allocators = (
            [allocator(*spec) for spec in specs] for specs in (kernel_specs, user_specs)
        )

    def _is_fixed(self, passes: LayerPass) -> bool:
        """Whether all calls divide a pass among threads in the same way."""
        return self.depends_on_threads or fits_one_thread(passes.kernel_plans, self._layout)

    def by_direction(self, values: Sequence[T]) -> Iterator[tuple[Sequence[T], Sequence[T]]]:
        """See `backend.Passes`."""
        visible, final = iter(values[: self.visible_count]), iter(values[self.visible_count :])
        for (count, _), plan in zip(self._state_counts, self.plans, strict=True):
            yield [*islice(visible, count)], [*islice(final, len(plan.cell.state))]

    def ragged(self, lengths: Sequence[int] | PackedLengths) -> RaggedLayout:
        """See `backend.PreparedCalls`."""
        if isinstance(lengths, PackedLengths):
            return packed_layout(lengths)
        prepared = (self._ragged_forward.get(False) or self._plan_forward_copies(False)).prepared
        # The division among several threads depends on the order of the sequences.
        return padded_layout(lengths, self._layout.steps, sorts=prepared is None)

    def _plan_forward_copies(self, is_packed: bool) -> "_RaggedForward":
        """Return the copies of a forward pass."""
        gathered, scattered = self._sorted_indices[is_packed:], self._returned[self.visible_count * is_packed :]
        widths = [shape[-1] for shape, _ in self._forward.result_specs(self._rows, self._layout.N)]
        plan = CopyPlan(
            tuple([self.shapes[k][-1] for k in gathered]),
            int(not is_packed),
            tuple([widths[k] for k in scattered]),
            0 if is_packed else self.visible_count,
            sorts=not is_packed,
        )
        is_prepared = self._prepared is not None and not is_packed
        prepared = self._forward.prepare(self._layout, self._packed, plan) if is_prepared else None
        self._ragged_forward[is_packed] = _RaggedForward(plan, gathered, scattered, prepared)
        return self._ragged_forward[is_packed]

    def forward(
        self,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        ragged: RaggedLayout | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """See `backend.Passes`. With `ragged`, tensors must have the dtype of the computation."""
        if ragged is not None:
            return self._forward_ragged(tensors, resets, ragged)
        kernel_tensors = (
            tensors if tensors[0].dtype is self._compute_dtype else to_contiguous(tensors, self._compute_dtype)
        )
        results = [*map(call, self._user_allocators)]
        recorded: list[Matrices] = []
        addresses: list[int] = []
        for block in self._recorded_blocks:
            recorded.append(Matrices(block))
            addresses += recorded[-1].addresses()
        self._forward.run(self._layout, resets, (*kernel_tensors, *results), addresses, self._packed, self._prepared)
        if self._result_dtype is not self._compute_dtype:
            for k in self._returned:
                results[k] = results[k].to(self._result_dtype)
        for recording, values in zip(recordings or (), recorded, strict=bool(recordings)):
            recording.values = values
        return [*map(results.__getitem__, self._returned)], [*map(results.__getitem__, self._saved)]

    @property
    def by_address(self) -> Callable[..., Sequence[Tensor]] | None:
        """See `backend.PreparedCalls`."""
        if self._saves or self._result_dtype is not self._compute_dtype:
            return None
        new_visible = [self._user_allocators[k] for k in self._returned[: self.visible_count]]
        arguments = self._forward, self._layout, self._packed, self._prepared
        return run_by_address(*arguments, new_visible, self._recorded_blocks, self._returned)

    def _forward_ragged(
        self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: RaggedLayout
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Run `forward` for sequences of different lengths or packed rows. The saved tensors begin with the copies."""
        kernel_tensors, is_packed = [*tensors], ragged.is_packed
        plan, gathered, scattered, prepared = self._ragged_forward.get(is_packed) or self._plan_forward_copies(
            is_packed
        )
        for k in gathered:
            kernel_tensors[k] = self._input_allocators[k]()
        if is_packed:
            specs = self._forward.result_specs(ragged.layout.rows, ragged.layout.N)
            kernel_results = [empty(*spec) for spec in specs]
        else:
            kernel_results = [*map(call, self._kernel_allocators)]
        user_results = [*map(call, map(self._user_allocators.__getitem__, scattered))]
        user_inputs, kernel_inputs = map(tensors.__getitem__, gathered), map(kernel_tensors.__getitem__, gathered)
        copied_results = map(kernel_results.__getitem__, scattered)
        copies = Copies(plan, [*user_inputs, *kernel_inputs, *user_results, *copied_results])
        run_tensors = *kernel_tensors, *kernel_results
        self._forward.run(ragged.layout, resets, run_tensors, (), self._packed, prepared, copies)
        packed_rows = map(kernel_results.__getitem__, self._returned[: self.visible_count * is_packed])
        return [*packed_rows, *user_results], [*kernel_tensors, *map(kernel_results.__getitem__, self._saved)]

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
        ragged: RaggedLayout | None = None,
        recordings: Sequence[Recording] | None = None,
        groups: int = 0,
    ) -> list[Tensor | None]:
        """See `backend.Passes`. The plans record no factors."""
        assert not groups
        if ragged is not None:
            tensors, saved = saved[: len(tensors)], saved[len(tensors) :]
        kernel_tensors = (
            tensors if tensors[0].dtype is self._compute_dtype else to_contiguous(tensors, self._compute_dtype)
        )
        d: list[Tensor | None] = []
        for k, v in enumerate(d_visible):
            if v is not None:
                if v.is_neg() or v.data_ptr() < LOW_ADDRESS:
                    (v,) = in_memory((v,))
                if v.dtype is not self._compute_dtype:
                    v = v.to(self._compute_dtype)
                if k < self.visible_count and not v.is_contiguous():
                    v = v.flatten(0, -2) if v.stride(-1) == 1 else v.contiguous()
            d.append(v)
        is_packed = ragged is not None and ragged.is_packed
        d_data = None
        if needed[0]:
            d_data = empty_like(kernel_tensors[0]) if is_packed else self._input_allocators[0]()
        key = tuple(needed), () if ragged is None else (is_packed, *map(_IS_NONE, d))
        backward, prepared, copied = self._backward_passes.get(key) or self._new_backward_pass(*key)
        user_gradients: dict[int, Tensor] = {}
        layout, copies = self._layout, None
        if copied is not None and ragged is not None:
            layout = ragged.layout
            copies, user_gradients = self._gradient_copies(copied, d, d_data, tensors)
        d_states: list[Tensor | None] = []
        at_steps = iter(d)
        for count, missing in self._state_counts:
            d_states += islice(at_steps, count)
            d_states += missing
        gradients, gate_gradients = backward.gradients(
            layout,
            kernel_tensors,
            saved if self._result_dtype is self._compute_dtype else to_contiguous(saved, self._compute_dtype),
            resets,
            d_states,
            d[self.visible_count :],
            d_data,
            self._rows,
            None if is_packed else prepared,
            copies,
        )
        for recording, grad in zip(recordings or (), gate_gradients, strict=bool(recordings)):
            recording.add(grad)
        for k, v in user_gradients.items():
            gradients[k] = v
        if kernel_tensors is tensors:
            return gradients
        return [d if d is None else d.to(v.dtype) for d, v in zip(gradients, tensors, strict=True)]

    def rows(self, tensors: Sequence[TensorOrNone], ragged: RaggedLayout | None) -> list[TensorOrNone]:
        """See `backend.PlannedPasses`."""
        order, places = (None, None) if ragged is None else (ragged.order, ragged.places)
        indices = {k: order if k else places for k in self.shapes}
        return [None if v is None else select_rows(v, indices.get(k)) for k, v in enumerate(tensors)]

    def restore(self, flat: Sequence[Tensor], data: Tensor, ragged: RaggedLayout | None) -> list[Tensor]:
        """See `backend.PlannedPasses`."""
        order, places = (None, None) if ragged is None else (ragged.order, ragged.places)
        visible, final = list[Tensor](), list[Tensor]()
        for (count, _), (states, own) in zip(self._state_counts, results_by_direction(self.plans, flat), strict=True):
            visible += [restore_rows(v, places, (*data.shape[:-1], v.shape[-1])) for v in states[:count]]
            final += own
        shapes = [self.shapes[k] for k in self._sequence_indices[1:]]
        return [*visible, *[restore_rows(v, order, shape) for v, shape in zip(final, shapes, strict=True)]]

    def _new_backward_pass(self, needed: tuple[bool, ...], ragged: tuple[bool, ...]) -> "_Backward":
        """Create the pass that computes the needed gradients.

        Args:
            needed: for each tensor of the call, whether its gradient is needed.
            ragged: empty for sequences of equal length. Otherwise whether the rows are packed, then for each visible
                and final state whether its gradient is missing.
        """
        parameters = needed_weights(self.plans, needed[1:])
        few_rows = have_few_rows(self._rows, self._sizes, backward=True)
        backward = cached_backward_pass(self.plans, self._sizes, parameters, needed[0], few_rows, host())
        if len(self._backward_passes) >= MAX_LAYOUTS:
            self._backward_passes.clear()
        copied = self._copied_gradients(needed, *ragged) if ragged else None
        is_packed = bool(ragged and ragged[0])
        prepared = None
        if not is_packed and self._is_fixed(backward):
            prepared = backward.prepare(self._layout, copies=copied and copied.plan)
        entry = self._backward_passes[needed, ragged] = _Backward(backward, prepared, copied)
        return entry

    def _copied_gradients(self, needed: Sequence[bool], is_packed: bool, *missing: bool) -> "_CopiedGradients":
        """Return the gradients that are copied. The arguments are those of `_new_backward_pass`."""
        count, (_, *initial) = self.visible_count, self._sequence_indices
        given = [k for k, is_missing in enumerate(missing) if not is_missing and (k >= count or not is_packed)]
        zeros = [(k, initial[k - count]) for k, is_missing in enumerate(missing) if is_missing and k >= count]
        # The pass replaces the gradients of the final states by those of the initial states.
        results = [(k, count + n - 1) for n, k in enumerate(self._sequence_indices) if needed[k] and n >= is_packed]
        widths = [shape[-1] for shape, _ in self._forward.result_specs(self._rows, self._layout.N)]
        plan = CopyPlan(
            tuple([widths[self._returned[k]] for k in given]),
            sum([k < count for k in given]),
            tuple([self.shapes[k][-1] for k, _ in results]),
            sum([k == 0 for k, _ in results]),
        )
        return _CopiedGradients(plan, given, zeros, results)

    def _gradient_copies(
        self, copied: "_CopiedGradients", d: list[Tensor | None], d_data: Tensor | None, tensors: Sequence[Tensor]
    ) -> tuple[Copies, dict[int, Tensor]]:
        """Return the copies before and after a backward pass, and new tensors for gradients in the user's layout.

        The copies after the pass fill the new tensors. The keys of the dict are indices of `tensors`.

        Args:
            copied: the gradients that are copied.
            d: the gradients of visible and final states. This method replaces them by empty tensors. The copies before
                the pass write the gradients into these, in the kernel's order of rows.
            d_data: the tensor to which the pass writes the gradient of the input.
            tensors: as in `backward`.
        """
        plan, given, zeros, results = copied
        new: dict[int, Tensor] = {}
        all_tensors: list[Any] = [*map(d.__getitem__, given)]
        for k in given:
            d[k] = self._kernel_allocators[self._returned[k]]()
            all_tensors.append(d[k])
        for k, like in zeros:
            d[k] = torch.zeros_like(tensors[like])
        for k, _ in results:
            new[k] = self._input_allocators[k]()
        all_tensors += new.values()
        for k, row in results:
            all_tensors.append(d[row] if k else d_data)
        return Copies(plan, [*map(Tensor.contiguous, all_tensors)]), new
