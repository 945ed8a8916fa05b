"""The forward and backward pass of a layer on the CPU. The input may have any supported dtype."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.backend import Signature
from glassgate.engines.contract import Recording, Steps, allowed_bfloat16_terms
from glassgate.engines.llvm_cpu.amx import is_faster
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout, batch_layout
from glassgate.engines.llvm_cpu.passes import cached_backward_pass, cached_forward_pass
from glassgate.engines.llvm_cpu.plan import have_few_rows
from glassgate.engines.llvm_cpu.prepared import PreparedPasses
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.sizes import Arithmetic, KernelSizes
from glassgate.engines.memory import COMPUTE_DTYPE, empty_rows, first_rows, to_contiguous
from glassgate.engines.plan import Plan, by_direction, needed_weights, results_by_direction, state_result_count


class Layer(NamedTuple):
    """`CompiledLayer` for the CPU. Kernels are compiled at their first use."""

    plans: tuple[Plan, ...]

    def forward(
        self,
        steps: Steps,
        operands: Sequence[Tensor],
        all_states: bool,
        save: bool,
        dtype: torch.dtype,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor]:
        """See `CompiledLayer.forward`. States that only the backward pass reads have the dtype of the computation."""
        S = steps.data.shape[0]
        layout, data, kernel_operands = self._kernel_inputs(steps, operands)
        sizes = self._sizes(operands, data, dtype)
        few_rows = have_few_rows(layout.rows, sizes)
        forward = cached_forward_pass(self.plans, sizes, dtype, all_states or save, save, few_rows, host())
        flat, recorded = forward.allocate_and_run(layout, (data, *kernel_operands), steps.resets, S)
        tensors = iter(flat)
        results: list[Tensor] = []
        kept: list[Tensor] = []
        for state_count, final_count, kept_count in forward.counts:
            states = islice(tensors, state_count)
            results += [v.to(dtype) if k == 0 or all_states else v for k, v in enumerate(states)]
            results += [v.to(dtype) for v in islice(tensors, final_count)]
            kept += islice(tensors, kept_count)
        for recording, values in zip(recordings or (), recorded, strict=bool(recordings)):
            recording.values = values
        return [*results, *kept]

    def backward(
        self,
        steps: Steps,
        operands: Sequence[Tensor],
        flat: Sequence[Tensor],
        d_results: dict[int, Tensor],
        needs_d_data: bool,
        needed: Sequence[bool] | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor | None]:
        """See `CompiledLayer.backward`."""
        S, D = steps.data.shape
        layout, data, kernel_operands = self._kernel_inputs(steps, operands)
        sizes = self._sizes(operands, data, flat[0].dtype)
        parameters = needed_weights(self.plans, [True] * len(operands) if needed is None else needed)
        d_flat = [d_results.get(index) for index in range(state_result_count(self.plans))]
        d_states, d_final = list[Tensor | None](), list[Tensor | None]()
        for own_states, own_final in results_by_direction(self.plans, d_flat):
            d_states += own_states
            d_final += own_final
        few_rows = have_few_rows(layout.rows, sizes, backward=True)
        backward = cached_backward_pass(self.plans, sizes, parameters, needs_d_data, few_rows, host())
        d_data = empty_rows(S, D, layout.rows, data.dtype) if needs_d_data else None
        saved = to_contiguous(flat, data.dtype)
        gradients, recorded = backward.gradients(
            layout, (data, *kernel_operands), saved, steps.resets, d_states, d_final, d_data, S
        )
        for recording, grad in zip(recordings or (), recorded, strict=bool(recordings)):
            recording.add(grad)
        tensors = steps.data, *operands
        if kernel_operands is operands and steps.data.dtype == data.dtype:
            return gradients
        return [d if d is None else d.to(v.dtype) for d, v in zip(gradients, tensors, strict=True)]

    def prepare(
        self, operands: Sequence[Tensor], steps: Steps, dtype: torch.dtype, signature: Signature
    ) -> PreparedPasses:
        """See `CompiledLayer.prepare`."""
        data = steps.data
        kernel_data = data.new_empty(0, data.shape[1], dtype=COMPUTE_DTYPE[data.dtype])
        sizes = self._sizes(operands, kernel_data, dtype)
        N = self._sequence_count(operands)
        return PreparedPasses(self.plans, sizes, batch_layout(None, data.shape[0], N), dtype, signature)

    def _sizes(self, operands: Sequence[Tensor], data: Tensor, dtype: torch.dtype) -> tuple[KernelSizes, ...]:
        """Return the sizes of each direction.

        Matrix products are computed in bfloat16 if this is requested and faster for this number of sequences.
        """
        arithmetic = Arithmetic.FULL if self.plans[0].trace.records_factors else requested_arithmetic(dtype, operands)
        if arithmetic and not is_faster(arithmetic, self._sequence_count(operands)):
            arithmetic = Arithmetic.FULL
        N = KernelSizes.capacity(self._sequence_count(operands), arithmetic)
        pairs = by_direction(self.plans, operands)
        return tuple([KernelSizes(*plan.sizes(tensors, data)._replace(N=N), arithmetic) for plan, tensors in pairs])

    def _sequence_count(self, operands: Sequence[Tensor]) -> int:
        return operands[len(self.plans[0].weights)].shape[0]

    def _kernel_inputs(self, steps: Steps, operands: Sequence[Tensor]) -> tuple[BatchLayout, Tensor, Sequence[Tensor]]:
        """Return the batch layout, and the input and the operands in the dtype and memory format of the kernels."""
        dtype = COMPUTE_DTYPE[steps.data.dtype]
        layout = batch_layout(steps.batch_sizes, steps.data.shape[0], self._sequence_count(operands))
        assert steps.resets is None or steps.resets.numel() >= layout.rows, "the mask of resets has too few rows"
        (data,) = to_contiguous((first_rows(steps.data, layout.rows),), dtype)
        return layout, data, to_contiguous(operands, dtype)


def requested_arithmetic(dtype: torch.dtype, operands: Sequence[Tensor]) -> Arithmetic:
    """Return the requested arithmetic: bfloat16 for bfloat16 results, torch's precision setting for float32 results.

    Only float32 parameters allow bfloat16 products. Other parameters have products in full precision.

    Args:
        dtype: the dtype of the layer's results.
        operands: the operands of the layer.
    """
    if operands[0].dtype is not torch.float32 or dtype not in (torch.bfloat16, torch.float32):
        return Arithmetic.FULL
    return Arithmetic(allowed_bfloat16_terms()) if dtype is torch.float32 else Arithmetic.BFLOAT16
