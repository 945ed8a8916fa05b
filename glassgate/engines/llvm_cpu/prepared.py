"""The passes of a layer for one call signature. Tensors have the shapes and dtypes of the user's call."""

from collections.abc import Sequence
from itertools import accumulate, chain, islice
from operator import call

import torch
from torch import Tensor

from glassgate.engines.backend import PackedLengths, Signature
from glassgate.engines.contract import Recording
from glassgate.engines.llvm_cpu.executable import Executable
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.llvm_cpu.passes import BackwardPass, Shape, cached_backward_pass, cached_forward_pass
from glassgate.engines.llvm_cpu.plan import have_few_rows
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.ragged import (
    Copies,
    CopyPlan,
    RaggedLayout,
    packed_layout,
    sort_sequences,
    unsorted_layout,
)
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from glassgate.engines.memory import LOW_ADDRESS, Matrices, allocator, empty, empty_like, in_memory, to_contiguous
from glassgate.engines.plan import Plan, needed_weights


class PreparedPasses:
    """`backend.PreparedPasses` for the CPU: the forward pass for inputs of one shape, and its backward passes.

    Args:
        plans: the plan of each direction.
        sizes: the sizes of each direction.
        layout: the rows of each step.
        dtype: the dtype of the visible states and the final states.
        signature: the signature of the calls.
    """

    def __init__(
        self,
        plans: tuple[Plan, ...],
        sizes: tuple[KernelSizes, ...],
        layout: BatchLayout,
        dtype: torch.dtype,
        signature: Signature,
    ) -> None:
        leading_shape, state_shapes, save, shared_initial, all_states, record = signature
        self.plans, self._sizes, self._layout, rows = plans, sizes, layout, layout.rows
        few_rows = have_few_rows(rows, sizes)
        self._forward = cached_forward_pass(plans, sizes, dtype, save or all_states, save, few_rows, host())
        self._executable = self._forward.executable(self._layout)
        self._compute_dtype = torch.float64 if sizes[0].bits == 64 else torch.float32
        self._result_dtype, self._rows = dtype, rows
        self._backward_passes: dict[tuple[bool, ...], tuple[BackwardPass, Executable]] = {}
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
        self._runs_on_one_thread = self._executable.partition.threads == 1
        self._copy_plans = [self._plan_forward_copies(packed) for packed in (False, True)]

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
        self.visible_counts = tuple([len(states) for states in visible_by_direction])
        self.visible_count, self._returned, self._saved = len(visible), visible + finals, saved + kept
        self._kernel_allocators, self._user_allocators = (
            [allocator(*spec) for spec in specs] for specs in (kernel_specs, user_specs)
        )

    def ragged(self, lengths: Sequence[int] | PackedLengths) -> RaggedLayout:
        """See `backend.PreparedPasses`."""
        if isinstance(lengths, PackedLengths):
            return packed_layout(lengths)
        layout = unsorted_layout(lengths, self._layout.steps)
        if not self._runs_on_one_thread:  # the division among threads depends on the order of the sequences
            sort_sequences(layout)
        return layout

    def _plan_forward_copies(self, packed: bool) -> tuple[CopyPlan, Sequence[int], Sequence[int]]:
        """Return the copies before and after a forward pass, and the indices of the copied tensors and results."""
        gathered, scattered = self._sorted_indices[packed:], self._returned[self.visible_count * packed :]
        widths = [shape[-1] for shape, _ in self._forward.result_specs(self._rows, self._layout.N)]
        plan = CopyPlan(
            tuple([self.shapes[k][-1] for k in gathered]),
            int(not packed),
            tuple([widths[k] for k in scattered]),
            0 if packed else self.visible_count,
            sorts=not packed,
        )
        return plan, gathered, scattered

    def forward(
        self,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        ragged: RaggedLayout | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
        """See `backend.PreparedPasses`. With `ragged`, tensors must have the dtype of the computation."""
        if ragged is not None:
            return self._forward_ragged(tensors, resets, ragged)
        kernel_tensors = (
            tensors if tensors[0].dtype is self._compute_dtype else to_contiguous(tensors, self._compute_dtype)
        )
        results = [*map(call, self._user_allocators)]
        recorded, addresses = list[Matrices](), list[int]()
        for block in self._recorded_blocks:
            recorded.append(block.allocate())
            addresses += recorded[-1].addresses()
        self._forward.run(self._layout, resets, (*kernel_tensors, *results), addresses, executable=self._executable)
        if self._result_dtype is not self._compute_dtype:
            for k in self._returned:
                results[k] = results[k].to(self._result_dtype)
        for recording, values in zip(recordings or (), recorded, strict=bool(recordings)):
            recording.values = values
        return tuple(map(results.__getitem__, self._returned)), tuple(map(results.__getitem__, self._saved)), tensors

    def _forward_ragged(
        self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: RaggedLayout
    ) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
        """Run `forward` for sequences of different lengths or packed rows."""
        kernel_tensors, is_packed = [*tensors], ragged.is_packed
        plan, gathered, scattered = self._copy_plans[is_packed]
        for k in gathered:
            kernel_tensors[k] = self._input_allocators[k]()
        if is_packed:
            specs = self._forward.result_specs(ragged.layout.rows, ragged.layout.N)
            kernel_results = [empty(*spec) for spec in specs]
        else:
            kernel_results = [*map(call, self._kernel_allocators)]
        user_results = [self._user_allocators[k]() for k in scattered]
        user_inputs, kernel_inputs = map(tensors.__getitem__, gathered), map(kernel_tensors.__getitem__, gathered)
        copied_results = map(kernel_results.__getitem__, scattered)
        copies = Copies(plan, [*user_inputs, *kernel_inputs, *user_results, *copied_results])
        executable = self._executable if self._runs_on_one_thread and not is_packed else None
        self._forward.run(ragged.layout, resets, (*kernel_tensors, *kernel_results), (), None, executable, copies)
        packed_rows = [kernel_results[k] for k in self._returned[: self.visible_count * is_packed]]
        return packed_rows + user_results, [kernel_results[k] for k in self._saved], kernel_tensors

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
        ragged: RaggedLayout | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor | None]:
        """See `backend.PreparedPasses`."""
        needed = tuple(needed)
        backward, executable = self._backward_passes.get(needed) or self._new_backward_pass(needed)
        kernel_tensors = (
            tensors if tensors[0].dtype is self._compute_dtype else to_contiguous(tensors, self._compute_dtype)
        )
        d = list[Tensor | None]()
        for k, v in enumerate(d_visible):
            if v is not None:
                if v.is_neg() or v.data_ptr() < LOW_ADDRESS:
                    (v,) = in_memory((v,))
                if v.dtype is not self._compute_dtype:
                    v = v.to(self._compute_dtype)
                if k < self.visible_count and not v.is_contiguous():
                    v = v.flatten(0, -2) if v.stride(-1) == 1 else v.contiguous()
            d.append(v)
        d_data = empty_like(kernel_tensors[0]) if needed[0] else None
        layout, copies, user_gradients = self._layout, None, dict[int, Tensor]()
        reuses_executable = ragged is None or (executable.partition.threads == 1 and not ragged.is_packed)
        if ragged is not None:
            layout = ragged.layout
            copies, user_gradients = self._gradient_copies(d, d_data, tensors, needed, ragged.is_packed)
        d_states, at_steps = list[Tensor | None](), iter(d)
        for plan, count in zip(self.plans, self.visible_counts, strict=True):
            d_states += islice(at_steps, count)
            d_states += [None] * (len(plan.cell.state) - count)
        d_operands, gate_gradients = backward.gradients(
            layout,
            kernel_tensors,
            saved if self._result_dtype is self._compute_dtype else to_contiguous(saved, self._compute_dtype),
            resets,
            d_states,
            d[self.visible_count :],
            d_data,
            self._rows,
            executable if reuses_executable else None,
            copies,
        )
        for recording, grad in zip(recordings or (), gate_gradients, strict=bool(recordings)):
            recording.add(grad)
        gradients = [d_data, *d_operands]
        for k, v in user_gradients.items():
            gradients[k] = v
        if kernel_tensors is tensors:
            return gradients
        return [d if d is None else d.to(v.dtype) for d, v in zip(gradients, tensors, strict=True)]

    def _new_backward_pass(self, needed: tuple[bool, ...]) -> tuple[BackwardPass, Executable]:
        """Create the pass that computes the needed gradients, and its executable for sequences of equal length."""
        parameters = needed_weights(self.plans, needed[1:])
        few_rows = have_few_rows(self._rows, self._sizes, backward=True)
        backward = cached_backward_pass(self.plans, self._sizes, parameters, needed[0], few_rows, host())
        self._backward_passes[needed] = backward, backward.executable(self._layout)
        return self._backward_passes[needed]

    def _gradient_copies(
        self,
        d: list[Tensor | None],
        d_data: Tensor | None,
        tensors: Sequence[Tensor],
        needed: Sequence[bool],
        packed: bool,
    ) -> tuple[Copies, dict[int, Tensor]]:
        """Return the copies before and after a backward pass, and new tensors for gradients in the user's layout.

        The copies after the pass fill the new tensors. The keys of the dict are indices of `tensors`.

        Args:
            d: the gradients of visible and final states. This method replaces them by empty tensors. The copies before
                the pass write the gradients into these, in the kernel's order of rows.
            d_data: the tensor to which the pass writes the gradient of the input.
            tensors, needed: as in `backward`.
            packed: whether input and output are packed rows, which are not copied.
        """
        gathered = {
            k: v.contiguous() for k, v in enumerate(d) if v is not None and (k >= self.visible_count or not packed)
        }
        for k, v in gathered.items():
            d[k] = empty_like(v)
        initial = self._sequence_indices[1:]
        d[self.visible_count :] = [
            torch.zeros_like(tensors[k]) if v is None else v
            for k, v in zip(initial, d[self.visible_count :], strict=True)
        ]
        # The pass replaces the gradients of the final states by those of the initial states.
        rows = dict(zip((0, *initial), (d_data, *d[self.visible_count :]), strict=True))
        scattered = {k: self._input_allocators[k]() for k in self._sequence_indices[int(packed) :] if needed[k]}
        plan = CopyPlan(
            tuple([v.shape[-1] for v in gathered.values()]),
            sum([k < self.visible_count for k in gathered]),
            tuple([v.shape[-1] for v in scattered.values()]),
            int(0 in scattered),
        )
        copied: list[Tensor | None] = [
            *gathered.values(),
            *[d[k] for k in gathered],
            *scattered.values(),
            *[rows[k] for k in scattered],
        ]
        return Copies(plan, [v for v in copied if v is not None]), scattered
