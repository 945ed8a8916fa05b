"""The forward and backward pass of a layer's directions on the CPU, on flat rows of any supported dtype."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.backend import Signature
from glassgate.engines.contract import Recording, Steps, terms_allowed
from glassgate.engines.llvm_cpu.amx import is_faster
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout, batch_layout
from glassgate.engines.llvm_cpu.passes import cached_backward_pass, cached_forward_pass
from glassgate.engines.llvm_cpu.plan import have_few_rows
from glassgate.engines.llvm_cpu.prepared import PreparedPasses
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from glassgate.engines.memory import COMPUTED_IN, computable, empty_rows, first_rows
from glassgate.engines.plan import Plan, by_direction, needed_weights, results_by_direction, state_result_count


class Layer(NamedTuple):
    """`Compiled` for the CPU. Kernels are compiled at their first use."""

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
        """See `Compiled.forward`. States that only the backward pass reads keep the dtype of the computation."""
        S = steps.data.shape[0]
        layout, data, computed = self._computable(steps, operands)
        sizes = self._sizes(operands, data, dtype)
        few_rows = have_few_rows(layout.rows, sizes)
        run = cached_forward_pass(self.plans, sizes, dtype, all_states or save, save, few_rows, host())
        flat, recorded = run.results(layout, (data, *computed), steps.resets, run.memory(S), S)
        tensors = iter(flat)
        results: list[Tensor] = []
        kept: list[Tensor] = []
        for states, final, saved in run.counts:
            results += [v.to(dtype) if k == 0 or all_states else v for k, v in enumerate(islice(tensors, states))]
            results += [v.to(dtype) for v in islice(tensors, final)]
            kept += islice(tensors, saved)
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
        """`Compiled.backward`."""
        S, D = steps.data.shape
        layout, data, computed = self._computable(steps, operands)
        sizes = self._sizes(operands, data, flat[0].dtype)
        parameters = needed_weights(self.plans, [True] * len(operands) if needed is None else needed)
        d_flat = [d_results.get(place) for place in range(state_result_count(self.plans))]
        d_states, d_final = zip(*results_by_direction(self.plans, d_flat), strict=True)
        few_rows = have_few_rows(layout.rows, sizes, backward=True)
        run = cached_backward_pass(self.plans, sizes, parameters, needs_d_data, few_rows, host())
        d_data = empty_rows(S, D, layout.rows, data.dtype) if needs_d_data else None
        saved = computable(flat, data.dtype)
        gradients, shown = run.gradients(layout, (data, *computed), saved, steps.resets, d_states, d_final, d_data, S)
        for recording, grad in zip(recordings or (), shown, strict=bool(recordings)):
            recording.add(grad)
        if computed is operands and steps.data.dtype == data.dtype:
            return [d_data, *gradients]
        return [
            v if v is None else v.to(of.dtype)
            for v, of in zip((d_data, *gradients), (steps.data, *operands), strict=True)
        ]

    def prepare(
        self, operands: Sequence[Tensor], steps: Steps, dtype: torch.dtype, signature: Signature
    ) -> PreparedPasses:
        """`Compiled.prepare`."""
        data = steps.data
        inside = data.new_empty(0, data.shape[1], dtype=COMPUTED_IN[data.dtype])
        sizes = self._sizes(operands, inside, dtype)
        return PreparedPasses(self.plans, sizes, data.shape[0] // sizes[0].N, dtype, signature)

    def _sizes(self, operands: Sequence[Tensor], data: Tensor, dtype: torch.dtype) -> tuple[KernelSizes, ...]:
        """The sizes of each direction, with products of bfloat16 if they are requested and faster for this batch."""
        terms = 0 if self.plans[0].trace.records_factors else terms_requested(dtype, operands)
        if terms and not is_faster(terms, self._sequences(operands)):
            terms = 0
        return tuple([KernelSizes(*plan.sizes(own, data), terms) for plan, own in by_direction(self.plans, operands)])

    def _sequences(self, operands: Sequence[Tensor]) -> int:
        """The number of sequences in a batch."""
        return operands[len(self.plans[0].weights)].shape[0]

    def _computable(self, steps: Steps, operands: Sequence[Tensor]) -> tuple[BatchLayout, Tensor, Sequence[Tensor]]:
        """The batch layout, and all tensors in the dtype and memory layout that the kernels read."""
        dtype = COMPUTED_IN[steps.data.dtype]
        layout = batch_layout(steps.batch_sizes, steps.data.shape[0], self._sequences(operands))
        assert steps.resets is None or steps.resets.numel() >= layout.rows, "resets have a value for every row"
        (data,) = computable((first_rows(steps.data, layout.rows),), dtype)
        return layout, data, computable(operands, dtype)


def terms_requested(dtype: torch.dtype, operands: Sequence[Tensor]) -> int:
    """The requested `KernelSizes.terms`: 1 for bfloat16 results, and torch's precision setting for float32."""
    of_results = {torch.bfloat16: 1, torch.float32: terms_allowed()}
    return of_results.get(dtype, 0) if operands[0].dtype is torch.float32 else 0
