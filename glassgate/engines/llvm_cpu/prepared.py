"""The passes of a layer for one call signature. Tensors have the shapes and dtypes of the user's call."""

from collections.abc import Sequence
from itertools import accumulate, chain, islice
from operator import call

import torch
from torch import Tensor

from glassgate.engines.backend import PackedLengths, Signature
from glassgate.engines.contract import Recording
from glassgate.engines.llvm_cpu.executable import Executable
from glassgate.engines.llvm_cpu.loops.batch import batch_layout
from glassgate.engines.llvm_cpu.passes import BackwardPass, Shape, cached_backward_pass, cached_forward_pass
from glassgate.engines.llvm_cpu.plan import have_few_rows
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.ragged import Copies, CopyPlan, Ragged, packed, ragged, sort
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from glassgate.engines.memory import Matrices, allocator, computable, empty, empty_like
from glassgate.engines.plan import Plan, needed_weights


class PreparedPasses:
    """The forward pass for inputs of one shape and, in training, the backward passes.

    Args:
        plans, sizes: one per direction.
        steps: the number of steps of a sequence.
        result: the type of the visible states and the final states.
        signature: the signature of the calls.
    """

    def __init__(
        self,
        plans: tuple[Plan, ...],
        sizes: tuple[KernelSizes, ...],
        steps: int,
        result: torch.dtype,
        signature: Signature,
    ) -> None:
        leading_shape, final, save, shared_initial, all_states, record = signature
        self.plans, self._sizes, rows = plans, sizes, steps * sizes[0].N
        self._layout = batch_layout(None, rows, sizes[0].N)
        few_rows = have_few_rows(rows, sizes)
        self._forward = cached_forward_pass(plans, sizes, result, save or all_states, save, few_rows, host())
        self._executable = self._forward.executable(self._layout)
        self._compute_dtype = torch.float64 if sizes[0].bits == 64 else torch.float32
        self._result_dtype, self._bits, self._rows = result, sizes[0].bits, rows
        self._backwards: dict[tuple[bool, ...], tuple[BackwardPass, Executable]] = {}
        self._sequence_tensors = [0]
        """The indices of the tensors with a row per sequence: the input and the initial states."""
        for plan, at in zip(plans, accumulate((plan.operand_count for plan in plans), initial=1), strict=False):
            self._sequence_tensors += range(at + len(plan.weights), at + len(plan.weights) + len(plan.cell.state))
        self._place_results(leading_shape, final, all_states)
        self._recorded = self._forward.recorded(rows) if record else []
        self.shapes = {0: (*leading_shape, sizes[0].D)} | dict(
            zip(self._sequence_tensors[1:], chain.from_iterable([final] * len(plans)), strict=True)
        )
        self._order_dependent = [0] if shared_initial else self._sequence_tensors
        """The indices of the tensors whose rows must be sorted like the sequences."""
        self._input_allocators = {k: allocator(shape, self._compute_dtype) for k, shape in self.shapes.items()}
        self._alone = self._executable.partition.threads == 1
        self._copies = [self._forward_copies(packed) for packed in (False, True)]

    def _place_results(self, leading_shape: Shape, final: Sequence[Shape], all_states: bool) -> None:
        """Set the indices of visible and saved results, and functions that allocate each result."""
        flat = self._forward.memory(self._rows)
        memory, at = [*flat], 0
        states = list[list[int]]()
        finals, saved, kept = list[int](), list[int](), list[int]()
        for states_of, finals_of, kept_of in self._forward.counts:
            own = iter(range(at, at + states_of + finals_of + kept_of))
            written = [*islice(own, states_of)]
            states.append(written if all_states else written[:1])
            finals += islice(own, finals_of)
            saved += written
            kept += own
            at += states_of + finals_of + kept_of
        visible = [k for own in states for k in own]
        for k in visible:
            (_, width), dtype = memory[k]
            memory[k] = (*leading_shape, width), dtype
        for k, shape in zip(finals, chain.from_iterable([final] * len(states)), strict=True):
            memory[k] = shape, memory[k][1]
        self.visible_states = tuple([len(own) for own in states])
        self.visible_count, self._visible, self._saved = len(visible), visible + finals, saved + kept
        self._flat_allocators, self._allocators = ([allocator(*each) for each in every] for every in (flat, memory))

    def ragged(self, lengths: Sequence[int] | PackedLengths) -> Ragged:
        """The layout of a call whose sequences have these lengths; see `backend.PreparedPasses`."""
        if isinstance(lengths, PackedLengths):
            return packed(lengths)
        layout = ragged(lengths, self._layout.steps)
        if not self._alone:  # threads divide the rows by the order of the sequences
            sort(layout)
        return layout

    def _forward_copies(self, packed: bool) -> tuple[CopyPlan, Sequence[int], Sequence[int]]:
        """The copies around a forward pass, and the indices of the tensors before it and of the results after it."""
        gathered, scattered = self._order_dependent[packed:], self._visible[self.visible_count * packed :]
        widths = [shape[-1] for shape, _ in self._forward.memory(self._rows)]
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
        lengths: Ragged | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
        """See `backend.PreparedPasses`. With `lengths`, tensors must have the dtype in which kernels compute."""
        if lengths is not None:
            return self._forward_ragged(tensors, resets, lengths)
        kernel_tensors = (
            tensors if tensors[0].dtype is self._compute_dtype else computable(tensors, self._compute_dtype)
        )
        written = [*map(call, self._allocators)]
        recorded, addresses = list[Matrices](), list[int]()
        for block in self._recorded:
            recorded.append(block.allocate())
            addresses += recorded[-1].addresses()
        self._forward.run(self._layout, resets, (*kernel_tensors, *written), addresses, executable=self._executable)
        if self._result_dtype is not self._compute_dtype:
            for k in self._visible:
                written[k] = written[k].to(self._result_dtype)
        for recording, values in zip(recordings or (), recorded, strict=bool(recordings)):
            recording.values = values
        return tuple(map(written.__getitem__, self._visible)), tuple(map(written.__getitem__, self._saved)), tensors

    def _forward_ragged(
        self, tensors: Sequence[Tensor], resets: Tensor | None, lengths: Ragged
    ) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
        """`forward` for sequences of different lengths or packed rows."""
        inside, is_packed = [*tensors], lengths.packed
        plan, gathered, scattered = self._copies[is_packed]
        for k in gathered:
            inside[k] = self._input_allocators[k]()
        if is_packed:
            written = [empty(shape, dtype) for shape, dtype in self._forward.memory(lengths.layout.rows)]
        else:
            written = [*map(call, self._flat_allocators)]
        results = [self._allocators[k]() for k in scattered]
        padded_inputs, input_rows = map(tensors.__getitem__, gathered), map(inside.__getitem__, gathered)
        result_rows = map(written.__getitem__, scattered)
        copies = Copies(plan, [*padded_inputs, *input_rows, *results, *result_rows])
        executable = self._executable if self._alone and not is_packed else None
        self._forward.run(lengths.layout, resets, (*inside, *written), (), None, executable, copies)
        visible = [written[k] for k in self._visible[: self.visible_count * is_packed]]
        return visible + results, [written[k] for k in self._saved], inside

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
        lengths: Ragged | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor | None]:
        """See `backend.PreparedPasses`."""
        run, executable = self._backward_of(tuple(needed))
        kernel_tensors = (
            tensors if tensors[0].dtype is self._compute_dtype else computable(tensors, self._compute_dtype)
        )
        d = [v if v is None or v.dtype is self._compute_dtype else v.to(self._compute_dtype) for v in d_visible]
        d_data = empty_like(kernel_tensors[0]) if needed[0] else None
        layout, copies, padded = self._layout, None, dict[int, Tensor]()
        alone = lengths is None or (executable.partition.threads == 1 and not lengths.packed)
        if lengths is not None:
            layout = lengths.layout
            copies, padded = self._gradient_copies(d, d_data, tensors, needed, lengths.packed)
        every, final = iter(d[: self.visible_count]), iter(d[self.visible_count :])
        d_states, d_final = [], []
        for plan, count in zip(self.plans, self.visible_states, strict=True):
            rows = [v if v is None else _as_matrix(v) for v in islice(every, count)]
            d_states.append(rows + [None] * (len(plan.cell.state) - count))
            d_final.append([*islice(final, len(plan.cell.state))])
        d_operands, gate_gradients = run.gradients(
            layout,
            kernel_tensors,
            saved if self._result_dtype is self._compute_dtype else computable(saved, self._compute_dtype),
            resets,
            d_states,
            d_final,
            d_data,
            self._rows,
            executable if alone else None,
            copies,
        )
        for recording, grad in zip(recordings or (), gate_gradients, strict=bool(recordings)):
            recording.add(grad)
        gradients = [d_data, *d_operands]
        for k, v in padded.items():
            gradients[k] = v
        if kernel_tensors is tensors:
            return gradients
        return [d if d is None else d.to(v.dtype) for d, v in zip(gradients, tensors, strict=True)]

    def _backward_of(self, needed: tuple[bool, ...]) -> tuple[BackwardPass, Executable]:
        """The backward pass that computes the needed gradients, and its executable for sequences of equal length."""
        if needed not in self._backwards:
            parameters = needed_weights(self.plans, needed[1:])
            few_rows = have_few_rows(self._rows, self._sizes, backward=True)
            run = cached_backward_pass(self.plans, self._sizes, parameters, needed[0], few_rows, host())
            self._backwards[needed] = run, run.executable(self._layout)
        return self._backwards[needed]

    def _gradient_copies(
        self,
        d: list[Tensor | None],
        d_data: Tensor | None,
        tensors: Sequence[Tensor],
        needed: Sequence[bool],
        packed: bool,
    ) -> tuple[Copies, dict[int, Tensor]]:
        """The copies around a backward pass, and the gradients of `tensors` in the user's layout.

        The gradients `d` of visible and final states are replaced by memory in the rows of kernels.
        """
        given = {
            k: v.contiguous() for k, v in enumerate(d) if v is not None and (k >= self.visible_count or not packed)
        }
        for k, v in given.items():
            d[k] = empty_like(v)
        initial = self._sequence_tensors[1:]
        d[self.visible_count :] = [
            torch.zeros_like(tensors[k]) if v is None else v
            for k, v in zip(initial, d[self.visible_count :], strict=True)
        ]
        # The pass replaces the gradients of the final states by those of the initial states.
        rows = dict(zip((0, *initial), (d_data, *d[self.visible_count :]), strict=True))
        padded = {k: self._input_allocators[k]() for k in self._sequence_tensors[int(packed) :] if needed[k]}
        plan = CopyPlan(
            tuple([v.shape[-1] for v in given.values()]),
            sum([k < self.visible_count for k in given]),
            tuple([v.shape[-1] for v in padded.values()]),
            int(0 in padded),
        )
        moved: list[Tensor | None] = [
            *given.values(),
            *[d[k] for k in given],
            *padded.values(),
            *[rows[k] for k in padded],
        ]
        return Copies(plan, [v for v in moved if v is not None]), padded


def _as_matrix(d: Tensor) -> Tensor:
    """A gradient as a matrix of equally spaced, contiguous rows."""
    if d.is_contiguous():
        return d
    return d.flatten(0, -2) if d.stride(-1) == 1 else d.contiguous()
