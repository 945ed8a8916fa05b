"""The forward and backward passes of a layer for fixed sizes. They allocate and return results and gradients.

They run executables (`executable.py`). `layer.py` calls them for whole layers.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count
from operator import ge

import torch
from torch import Tensor

from glassgate.engines.llvm_cpu.arguments import RESETS, Argument, address, pitch
from glassgate.engines.llvm_cpu.backward import RequestedGradients, cached_backward
from glassgate.engines.llvm_cpu.executable import MAX_LAYOUTS, AddressIndices, Executable
from glassgate.engines.llvm_cpu.forward import cached_forward
from glassgate.engines.llvm_cpu.gradients import OperandGradients
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.llvm_cpu.partition import Partition, choose_partition
from glassgate.engines.llvm_cpu.plan import KernelPlan
from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.ragged import Copies
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from glassgate.engines.memory import Matrices, MatrixBlock, empty, matrix_block
from glassgate.engines.plan import Plan

Shape = tuple[int, ...]
Memory = tuple[Shape, torch.dtype]
"""The shape and the dtype of a tensor to allocate."""
LOWEST_ADDRESS = 2**32
"""Most valid addresses are higher. For a lower one, the call checks whether each tensor has memory."""


class LayerPass:
    """A pass over all directions of a layer. Subclasses define its tensors and its results.

    Args:
        kernels: one per direction.
        shared: for each direction, the arguments for tensors that all directions share. They are the first tensors of
            a call.
        groups: for each group of other tensors, the arguments of each direction. A call passes the tensors group by
            group.
        numbers: for each direction, the arguments for the numbers of a call.
    """

    def __init__(
        self,
        kernels: Sequence[KernelPlan],
        shared: Sequence[Sequence[Argument]],
        *groups: Sequence[Sequence[Argument]],
        numbers: Sequence[Sequence[Argument]] = (),
    ) -> None:
        self.kernel_plans, self._executables = kernels, dict[Partition, Executable]()
        self._least: dict[int, list[int]] = {}
        self._extents = [*map(kernels[0].min_elements, shared[0])]
        self._extents += [
            k.min_elements(a) for group in groups for k, own in zip(kernels, group, strict=True) for a in own
        ]
        self._addresses: list[AddressIndices] = [dict(zip((RESETS, *own), count(), strict=False)) for own in shared]
        indices = count(1 + len(shared[0]))
        for group in (*groups, numbers):
            for d, arguments in enumerate(group):
                self._addresses[d] = {**self._addresses[d], **dict(zip(arguments, indices, strict=False))}

    def executable(self, layout: BatchLayout, parts: Partition | None = None) -> Executable:
        """The executable for a division among threads. The default is `choose_partition` for this layout."""
        parts = parts or choose_partition(self.kernel_plans, layout)
        executable = self._executables.get(parts)
        if executable is None:
            executable = self._executables[parts] = Executable(self.kernel_plans, parts, self._addresses)
        return executable

    def run(
        self,
        layout: BatchLayout,
        resets: Tensor | None,
        tensors: Sequence[Tensor],
        numbers: Sequence[int] = (),
        packed: Sequence[Tensor] | None = None,
        executable: Executable | None = None,
        copies: Copies | None = None,
    ) -> None:
        """Run the pass.

        Args:
            layout: the rows of each step.
            resets: (rows,) bool.
            tensors: the tensors of `shared`, then those of `groups`.
            numbers: the values of the arguments `numbers`: addresses, and distances between rows in bytes.
            packed: the weights of each direction, if they are packed.
            executable: an executable of this pass. The default is that of `executable(layout)`.
            copies: the copies before and after the pass, if there are any.
        """
        least = self._least.get(layout.rows) or self._count(layout.rows)
        assert all(map(ge, map(Tensor.numel, tensors), least)), "a tensor has fewer elements than kernels access"
        every = tensors if copies is None else (*tensors, *copies.tensors)
        addresses = [*map(Tensor.data_ptr, every)]
        if min(addresses) < LOWEST_ADDRESS:
            check_storage(every)
        addresses[len(tensors) : len(tensors)] = numbers
        addresses.insert(0, 0 if resets is None else resets.data_ptr())
        (executable or self.executable(layout)).run(layout, addresses, packed, copies and copies.plan)

    def _count(self, rows: int) -> list[int]:
        """The number of elements that kernels access in each tensor of a call with this number of rows."""
        least = [fixed + by_row * rows for fixed, by_row in self._extents]
        if len(self._least) >= MAX_LAYOUTS:
            self._least.clear()
        self._least[rows] = least
        return least


def check_storage(tensors: Sequence[Tensor]) -> None:
    """Raise an error if the memory of a tensor was freed, which kernels cannot detect."""
    for tensor in tensors:
        if tensor.numel() and tensor.untyped_storage().nbytes() < tensor.nbytes:
            raise RuntimeError(
                f"a tensor of shape {tuple(tensor.shape)} has no memory: its storage was freed "
                "(`untyped_storage().resize_(0)`, as sharded training does between uses); restore it before the call"
            )


class ForwardPass(LayerPass):
    """A forward pass.

    Args:
        plans, sizes: the plan and the sizes of each direction.
        result: the dtype of the output and the final states.
        all_states: whether all states are stored at every step. Otherwise only the output is.
        save: whether a backward pass follows.
        few_rows: for each direction, whether weights are read unpacked.
        processor: the processor to generate kernels for.

    Attributes:
        counts: for each direction, the number of results that are states at every step, final states, and values kept
            for the backward pass.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        sizes: Sequence[KernelSizes],
        result: torch.dtype,
        all_states: bool,
        save: bool,
        few_rows: Sequence[bool],
        processor: Processor,
    ) -> None:
        self.plans, self.sizes = plans, sizes
        inside = torch.float64 if sizes[0].bits == 64 else torch.float32
        rounded = sizes[0].terms > 0 and result is torch.bfloat16
        kernels = [
            cached_forward(plan, own, save, all_states, rounded, few, processor)
            for plan, own, few in zip(plans, sizes, few_rows, strict=True)
        ]
        shared = [kernel.inputs[:1] for kernel in kernels]
        operands, written, recorded = zip(*[(k.inputs[1:], k.results, k.recorded) for k in kernels], strict=True)
        super().__init__(kernels, shared, operands, written, numbers=recorded)
        self.counts: list[tuple[int, int, int]] = []
        self._results: list[tuple[bool, int, torch.dtype]] = []
        for plan, own in zip(plans, sizes, strict=True):
            widths = list(plan.state_widths(own.of_call).values())
            states = widths if all_states else widths[:1]
            kept = list(plan.kept_widths(own.of_call).values()) if save else []
            self.counts.append((len(states), len(widths), len(kept)))
            self._results += [(True, n, result if rounded and k == 0 else inside) for k, n in enumerate(states)]
            self._results += [(False, n, inside) for n in widths] + [(True, n, inside) for n in kept]
        self._inside = inside
        self._recorded = [
            tuple([(gate, own.H) for gate in plan.trace.recorded]) for plan, own in zip(plans, sizes, strict=True)
        ]

    def memory(self, S: int) -> list[Memory]:
        """The shape and dtype of the results of all directions, for a call with S rows including padding."""
        N = self.sizes[0].N
        return [((S if by_row else N, width), dtype) for by_row, width, dtype in self._results]

    def recorded(self, S: int) -> list[MatrixBlock]:
        """The memory of the recorded values of each direction, for a call with S rows including padding."""
        return [matrix_block(S, widths, self._inside) for widths in self._recorded]

    def results(
        self,
        layout: BatchLayout,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        memory: Sequence[Memory],
        S: int,
        packed: Sequence[Tensor] | None = None,
    ) -> tuple[list[Tensor], list[Matrices]]:
        """Run the pass. Returns its results and the recorded values of each direction.

        Args:
            layout: the rows of each step.
            tensors: the input and all tensors of the directions, contiguous.
            resets: (rows,) bool.
            memory: the shape and dtype of each result.
            S: the number of rows of results. The rows after those of the layout become zero.
            packed: the weights of each direction, if they are packed.
        """
        written = [empty(shape, dtype) for shape, dtype in memory]
        recorded = [block.allocate() for block in self.recorded(S)]
        if layout.rows < S:
            for values in recorded:
                values.zero_from(layout.rows)
            for tensor, (by_row, _, _) in zip(written, self._results, strict=True):
                if by_row:
                    tensor[layout.rows :].zero_()
        addresses = [start for values in recorded for start in values.addresses()]
        self.run(layout, resets, (*tensors, *written), addresses, packed)
        return written, recorded


class BackwardPass(LayerPass):
    """A backward pass. It computes the gradients of all tensors that the forward pass read, except noise.

    Args:
        plans, sizes: the plan and the sizes of each direction.
        parameters: the parameters of each direction whose gradients are computed.
        needs_d_data: whether the gradient of the input is computed.
        few_rows: as in `ForwardPass`.
        processor: the processor to generate kernels for.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        sizes: Sequence[KernelSizes],
        parameters: Sequence[tuple[str, ...]],
        needs_d_data: bool,
        few_rows: Sequence[bool],
        processor: Processor,
    ) -> None:
        self.plans, self.sizes, self.needs_d_data = plans, sizes, needs_d_data
        kernels = [
            cached_backward(plan, own, RequestedGradients(names, needs_d_data, added=d > 0), few, processor)
            for d, (plan, own, names, few) in enumerate(zip(plans, sizes, parameters, few_rows, strict=True))
        ]
        super().__init__(
            kernels,
            [[kernel.inputs[0], *([kernel.d_data] if needs_d_data else [])] for kernel in kernels],
            [kernel.inputs[1:] for kernel in kernels],
            [kernel.states for kernel in kernels],
            [kernel.kept for kernel in kernels],
            [kernel.results for kernel in kernels],
            numbers=[
                [*[argument for d in kernel.d_states for argument in (address(d), pitch(d))], *kernel.recorded]
                for kernel in kernels
            ],
        )
        self._gradients = [*map(OperandGradients, kernels)]

    def gradients(
        self,
        layout: BatchLayout,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_states: Sequence[Sequence[Tensor | None]],
        d_final: Sequence[Sequence[Tensor | None]],
        d_data: Tensor | None,
        S: int,
        executable: Executable | None = None,
        copies: Copies | None = None,
    ) -> tuple[list[Tensor | None], list[Mapping[str, Tensor]]]:
        """Compute the gradients of all tensors of the directions (None for tensors without one) and of recordings.

        Args:
            layout, tensors, resets: those of the forward pass; the input is the first tensor.
            saved: the states of all directions at every step, then the values that all of them kept.
            d_states: for each direction, the gradients of its states at every step; None for zero. A gradient is
                contiguous, or it has shape (S, W) and equally spaced rows.
            d_final: for each direction, the gradients of its final states; None for zero.
            d_data: the memory for the gradient of the input, if it is computed.
            S: the number of rows of a recording. The rows after those of the layout become zero.
            executable, copies: as in `run`. With copies, `d_final` is complete, and the pass overwrites it.
        """
        written: list[Tensor] = []
        numbers: list[int] = []
        buffers, shown, at = [], list[Mapping[str, Tensor]](), 1
        for d, gradients in enumerate(self._gradients):
            own = tensors[at : at + gradients.operand_count]
            memory = gradients.memory(own, d_final[d], layout, resets is not None, copies is not None)
            recorded = gradients.recorded(S, layout, tensors[0])
            written += memory.written
            numbers += gradients.rows(d_states[d], layout.rows)
            if recorded is not None:
                numbers += recorded.addresses()
            buffers.append(memory)
            shown.append({} if recorded is None else recorded)
            at += gradients.operand_count
        shared = tensors[:1] if d_data is None else (tensors[0], d_data)
        self.run(layout, resets, (*shared, *tensors[1:], *saved, *written), numbers, None, executable, copies)
        every = zip(self._gradients, buffers, strict=True)
        return [d for gradients, memory in every for d in gradients.by_tensor(memory)], shown


cached_forward_pass, cached_backward_pass = lru_cache(1024)(ForwardPass), lru_cache(1024)(BackwardPass)
