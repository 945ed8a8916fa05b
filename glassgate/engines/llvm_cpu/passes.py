"""The forward and backward passes of a layer for fixed sizes. They allocate the results and the gradients.

They run executables (`executable.py`). `layer.py` runs them for single calls, and `prepared.py` for repeated calls.
"""

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, count
from operator import ge

import torch
from torch import Tensor

from glassgate.engines.llvm_cpu.arguments import RESETS, Argument, address, pitch
from glassgate.engines.llvm_cpu.backward import RequestedGradients, cached_backward_plan
from glassgate.engines.llvm_cpu.bound import Template
from glassgate.engines.llvm_cpu.executable import MAX_LAYOUTS, AddressIndices, Executable
from glassgate.engines.llvm_cpu.forward import cached_forward_plan
from glassgate.engines.llvm_cpu.gradients import GradientTable, custom_parameter_gradients
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.llvm_cpu.partition import Partition, choose_partition
from glassgate.engines.llvm_cpu.plan import KernelPlan
from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.ragged import Copies, CopyPlan
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from glassgate.engines.llvm_cpu.workspace import borrow, kept
from glassgate.engines.memory import LOW_ADDRESS, Matrices, MatrixBlock, empty, matrix_block, readable
from glassgate.engines.plan import Plan

Shape = tuple[int, ...]
TensorSpec = tuple[Shape, torch.dtype]
"""The shape and the dtype of a tensor to allocate."""


class LayerPass:
    """A pass of all directions of a layer. Subclasses define its tensors and its results.

    Args:
        kernel_plans: one per direction.
        shared: for each direction, the arguments for the tensors that all directions share. A call passes these
            tensors first.
        groups: for each group of other tensors, the arguments of each direction. A call passes the tensors group by
            group.
        pointers: for each direction, the arguments for the addresses and pitches that a call passes without a tensor.
    """

    def __init__(
        self,
        kernel_plans: Sequence[KernelPlan],
        shared: Sequence[Sequence[Argument]],
        *groups: Sequence[Sequence[Argument]],
        pointers: Sequence[Sequence[Argument]] = (),
    ) -> None:
        self.kernel_plans, self._executables = kernel_plans, dict[Partition, Executable]()
        self._pointer_count = sum([len(own) for own in pointers])
        self._min_elements_by_layout: dict[tuple[int, int], list[int]] = {}
        self._checked: Template | None = None
        """The template that ran last. The tensors of all its calls have the same shapes, so one check is enough."""
        self._min_elements = [*map(kernel_plans[0].min_elements, shared[0])]
        for group in groups:
            for plan, arguments in zip(kernel_plans, group, strict=True):
                self._min_elements += map(plan.min_elements, arguments)
        self._address_indices: list[AddressIndices] = [
            dict(zip((RESETS, *arguments), count(), strict=False)) for arguments in shared
        ]
        indices = count(1 + len(shared[0]))
        for group in (*groups, pointers):
            for d, arguments in enumerate(group):
                self._address_indices[d] = {**self._address_indices[d], **dict(zip(arguments, indices, strict=False))}

    def executable(self, layout: BatchLayout, partition: Partition | None = None) -> Executable:
        """Return the executable for a division of the work among threads.

        Args:
            layout: the rows of each step.
            partition: the division. The default is the result of `choose_partition` for this layout.
        """
        partition = partition or choose_partition(self.kernel_plans, layout)
        executable = self._executables.get(partition)
        if executable is None:
            executable = Executable(self.kernel_plans, partition, self._address_indices)
            self._executables[partition] = executable
        return executable

    def prepare(
        self, layout: BatchLayout, packed: Sequence[Tensor] | None = None, copies: CopyPlan | None = None
    ) -> Executable | Template | None:
        """Return the argument `prepared` of `run` for calls with this layout, or with ragged batches of this size.

        Args:
            layout: the rows of each step, for sequences of equal length.
            packed: as in `run`.
            copies: the copies of ragged batches, whose division among several threads depends on their lengths.
        """
        executable = self.executable(layout)
        if copies is not None and executable.partition.threads > 1:
            return None
        copied = 0 if copies is None else 2 * (len(copies.gathered) + len(copies.scattered))
        address_count = 1 + len(self._min_elements) + self._pointer_count + copied
        return executable.template(layout, packed, copies, address_count) or executable

    def run(
        self,
        layout: BatchLayout,
        resets: Tensor | None,
        tensors: Sequence[Tensor],
        pointers: Sequence[int] = (),
        packed: Sequence[Tensor] | None = None,
        prepared: Executable | Template | None = None,
        copies: Copies | None = None,
    ) -> None:
        """Run the pass.

        Args:
            layout: the rows of each step.
            resets: (rows,) bool, the mask of resets; None without resets.
            tensors: the tensors of `shared`, then those of `groups`.
            pointers: the values of the arguments `pointers`: addresses, and distances between rows in bytes.
            packed: the packed weights of each direction; None if this run packs the weights.
            prepared: the result of `prepare`. The default is `self.executable(layout)`.
            copies: the copies before and after the pass, if there are any.
        """
        if prepared is None or prepared is not self._checked or copies is not None:
            counts = self._min_elements_by_layout.get((layout.rows, layout.N)) or self._count_elements(layout)
            assert all(map(ge, map(Tensor.numel, tensors), counts)), "a tensor has fewer elements than kernels access"
            self._checked = prepared if isinstance(prepared, Template) else None
        all_tensors = tensors if copies is None else (*tensors, *copies.tensors)
        addresses = [*map(Tensor.data_ptr, all_tensors)]
        if min(addresses) < LOW_ADDRESS or (resets is not None and resets.data_ptr() < LOW_ADDRESS):
            all_tensors = readable(all_tensors if resets is None else (*all_tensors, resets))[: len(all_tensors)]
            addresses = [*map(Tensor.data_ptr, all_tensors)]
        if pointers:
            addresses[len(tensors) : len(tensors)] = pointers
        addresses.insert(0, 0 if resets is None else resets.data_ptr())
        if not isinstance(prepared, Template):
            (prepared or self.executable(layout)).run(layout, addresses, packed, copies and copies.plan)
            return
        function, values, workspace, weights, rows, size, _ = prepared
        values = values + array("q", addresses)
        if not layout.has_equal_lengths:
            values[rows : rows + 4] = array("q", (layout.rows, layout.N, *layout.addresses))
        start, _memory = (kept.start, kept.memory) if size <= kept.size else borrow(size)
        values[workspace] = start
        for index, offset in weights:
            values[index] = start + offset
        function.run(values.buffer_info()[0])

    def _count_elements(self, layout: BatchLayout) -> list[int]:
        """Count the elements that kernels access in each tensor of a call with this layout."""
        rows, N = layout.rows, layout.N
        counts = [
            constant + per_row * rows + per_sequence * N for constant, per_row, per_sequence in self._min_elements
        ]
        if len(self._min_elements_by_layout) >= MAX_LAYOUTS:
            self._min_elements_by_layout.clear()
        self._min_elements_by_layout[rows, N] = counts
        return counts


class ForwardPass(LayerPass):
    """A forward pass.

    Args:
        plans: the plan of each direction.
        sizes: the sizes of each direction.
        dtype: the dtype of the layer's results. The output is bfloat16 if this is bfloat16 and matrix products are
            computed in bfloat16. All other results have the dtype of the computation, float32 or float64.
        all_states: whether all states are stored at every step, or only the output.
        save: whether a backward pass follows.
        few_rows: for each direction, whether weights are read without packing.
        processor: the processor to generate kernels for.

    Attributes:
        counts: for each direction, the number of results of each sort: states at every step, final states, and values
            kept for the backward pass.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        sizes: Sequence[KernelSizes],
        dtype: torch.dtype,
        all_states: bool,
        save: bool,
        few_rows: Sequence[bool],
        processor: Processor,
    ) -> None:
        self.plans, self.sizes = plans, sizes
        compute_dtype = torch.float64 if sizes[0].bits == 64 else torch.float32
        rounds_output = sizes[0].arithmetic > 0 and dtype is torch.bfloat16
        kernel_plans = [
            cached_forward_plan(plan, size, save, all_states, rounds_output, few, processor)
            for plan, size, few in zip(plans, sizes, few_rows, strict=True)
        ]
        super().__init__(
            kernel_plans,
            [plan.tensors.inputs[:1] for plan in kernel_plans],
            [plan.tensors.inputs[1:] for plan in kernel_plans],
            [plan.tensors.results for plan in kernel_plans],
            pointers=[plan.tensors.recorded for plan in kernel_plans],
        )
        self.counts: list[tuple[int, int, int]] = []
        self._results: list[tuple[bool, int, torch.dtype]] = []
        """For each result: whether it has rows for all steps, instead of one per sequence; its width; and its dtype."""
        for plan, size in zip(plans, sizes, strict=True):
            widths = list(plan.state_widths(size.base_sizes).values())
            states = widths if all_states else widths[:1]
            kept = list(plan.kept_widths(size.base_sizes).values()) if save else []
            self.counts.append((len(states), len(widths), len(kept)))
            output_dtype = dtype if rounds_output else compute_dtype
            self._results += [(True, n, compute_dtype if k else output_dtype) for k, n in enumerate(states)]
            self._results += [(False, n, compute_dtype) for n in widths] + [(True, n, compute_dtype) for n in kept]
        self._compute_dtype = compute_dtype
        self._recorded_widths = [
            tuple([(gate, size.H) for gate in plan.trace.recorded]) for plan, size in zip(plans, sizes, strict=True)
        ]

    def result_specs(self, S: int, N: int) -> list[TensorSpec]:
        """Return the shape and the dtype of each result of all directions.

        Args:
            S: the number of rows of the call, including padding.
            N: the number of sequences.
        """
        return [((S if has_all_rows else N, width), dtype) for has_all_rows, width, dtype in self._results]

    def recorded_blocks(self, S: int) -> list[MatrixBlock]:
        """Return the memory block of each direction's recorded values, for a call with S rows including padding."""
        return [matrix_block(S, widths, self._compute_dtype) for widths in self._recorded_widths]

    def allocate_and_run(
        self,
        layout: BatchLayout,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        S: int,
        packed: Sequence[Tensor] | None = None,
    ) -> tuple[list[Tensor], list[Matrices]]:
        """Allocate the results and run the pass. Return its results and the recorded values of each direction.

        Args:
            layout: the rows of each step.
            tensors: the input and all operands of the directions, contiguous.
            resets, packed: as in `run`.
            S: the number of rows of the results. The rows after those of the layout become zero.
        """
        results = [empty(shape, dtype) for shape, dtype in self.result_specs(S, layout.N)]
        recorded = [Matrices(block) for block in self.recorded_blocks(S)]
        if layout.rows < S:
            for values in recorded:
                values.zero_from(layout.rows)
            for tensor, (has_all_rows, _, _) in zip(results, self._results, strict=True):
                if has_all_rows:
                    tensor[layout.rows :].zero_()
        addresses = [start for values in recorded for start in values.addresses()]
        self.run(layout, resets, (*tensors, *results), addresses, packed)
        return results, recorded


class BackwardPass(LayerPass):
    """A backward pass. It computes the gradients of the input, of parameters and of states.

    Args:
        plans: the plan of each direction.
        sizes: the sizes of each direction.
        parameters: for each direction, the names of the parameters whose gradients are computed.
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
        kernel_plans = [
            cached_backward_plan(plan, size, RequestedGradients(names, needs_d_data, added=d > 0), few, processor)
            for d, (plan, size, names, few) in enumerate(zip(plans, sizes, parameters, few_rows, strict=True))
        ]
        super().__init__(
            kernel_plans,
            [[plan.tensors.inputs[0], *([plan.d_data] if needs_d_data else [])] for plan in kernel_plans],
            [plan.tensors.inputs[1:] for plan in kernel_plans],
            [plan.tensors.states for plan in kernel_plans],
            [plan.tensors.kept for plan in kernel_plans],
            [plan.tensors.results for plan in kernel_plans],
            pointers=[
                [
                    *[argument for state in plan.d_states for argument in (address(state), pitch(state))],
                    *plan.tensors.recorded,
                ]
                for plan in kernel_plans
            ],
        )
        starts = accumulate([plan.operand_count for plan in plans], initial=1)
        self._tables = [GradientTable.of(plan, start) for plan, start in zip(kernel_plans, starts, strict=False)]

    def gradients(
        self,
        layout: BatchLayout,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_states: Sequence[Tensor | None],
        d_final: Sequence[Tensor | None],
        d_data: Tensor | None,
        S: int,
        prepared: Executable | Template | None = None,
        copies: Copies | None = None,
    ) -> tuple[list[Tensor | None], list[Mapping[str, Tensor]]]:
        """Compute the gradients.

        Args:
            layout, tensors, resets: those of the forward pass. The input is the first tensor.
            saved: the states of all directions at every step, then the values that the forward pass kept.
            d_states: the gradients of the states of all directions at every step; None for zero. A gradient is
                contiguous, or it has shape (S, W) and equally spaced rows.
            d_final: the gradients of the final states of all directions; None for zero.
            d_data: memory for the gradient of the input; None if this gradient is not computed.
            S: the number of rows of recorded gradients. The rows after those of the layout become zero.
            prepared, copies: as in `run`. With copies, `d_final` has no None, and the pass overwrites `d_final`.

        Returns:
            the gradient of the input and of each operand of all directions, None for those without one; and for each
            direction the recorded gradients by name.
        """
        gradients = [d_data, *[None] * (len(tensors) - 1)]
        results: list[Tensor] = []
        pointers: list[int] = []
        memories: list[tuple[list[Tensor], list[Tensor], Tensor]] = []
        recorded: list[Mapping[str, Tensor]] = []
        remaining, remaining_final = iter(d_states), iter(d_final)
        for table in self._tables:
            for k, make in table.weights:
                results.append(v := make(tensors[k]) if layout.rows else torch.zeros_like(tensors[k]))
                gradients[k] = v
            # The pass updates the gradients of states in place, from the final states to the initial states.
            for k, d in zip(table.initial, remaining_final, strict=False):
                if d is None:
                    d = torch.zeros_like(tensors[k])
                elif copies is None:
                    d = d.clone(memory_format=torch.contiguous_format)
                gradients[k] = d
                results.append(d)
            carried = results[-len(table.initial) :]
            restart = carried if resets is None else [*map(torch.zeros_like, carried)]
            results += restart
            for k, d in zip(table.restart, restart, strict=False):
                gradients[k] = torch.zeros_like(d) if resets is None else d
            parameter = table.no_parameter
            if table.parameter_width:
                parameter = tensors[0].new_zeros(layout.N, table.parameter_width)
            results.append(parameter)
            memories.append((carried, restart, parameter))
            for (width, contiguous_pitch), d in zip(table.states, remaining, strict=False):
                if d is None:
                    pointers += table.zeros
                    continue
                assert d.shape[-1] == width, "the gradient of a state is as wide as the state"
                assert d.numel() >= width * layout.rows, "the gradient of a state has all rows"
                pointers += d.data_ptr(), contiguous_pitch if d.is_contiguous() else d.stride(-2) * d.element_size()
            if not table.recorded_widths:
                recorded.append({})
                continue
            matrices = Matrices(matrix_block(S, table.recorded_widths, tensors[0].dtype))
            if layout.rows < S:
                matrices.zero_from(layout.rows)
            pointers += matrices.addresses()
            recorded.append(matrices)
        shared = tensors[:1] if d_data is None else (tensors[0], d_data)
        self.run(layout, resets, (*shared, *tensors[1:], *saved, *results), pointers, None, prepared, copies)
        for table, (carried, restart, parameter) in zip(self._tables, memories, strict=True):
            if resets is not None and not table.restart:
                for d, other in zip(carried, restart, strict=True):
                    d += other
            if table.parameter_width:
                by_name = custom_parameter_gradients(table.plan, table.H, table.names, parameter)
                for (k, _), name in zip(table.weights, table.names, strict=True):
                    gradients[k] = by_name.get(name, gradients[k])
        return gradients, recorded


cached_forward_pass, cached_backward_pass = lru_cache(1024)(ForwardPass), lru_cache(1024)(BackwardPass)
