"""Calls that are not prepared: eager calls, calls inside transforms of torch.func, and their derivatives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from glassgate.engines.backend import CompiledLayer, PlannedPasses, TensorOrNone
from glassgate.engines.contract import Direction, Reason, Recording, Steps, result_type
from glassgate.engines.memory import COMPUTE_DTYPE, in_memory, to_contiguous_rows
from glassgate.engines.plan import (
    Plan,
    by_direction,
    operands_of,
    plan_of,
    results_by_direction,
    state_result_count,
    without_final_states,
)
from glassgate.engines.registry import BACKENDS
from glassgate.engines.torch_op.by_group import sum_by_group
from glassgate.engines.torch_op.vmap_batch import flatten_steps

T = TypeVar("T")


def why_not(steps: Steps, directions: Sequence[Direction]) -> Reason | None:
    """Why the kernels cannot run a call inside a transform; None if they can."""
    if steps.data.device.type != "cpu":
        return Reason("inside transforms of torch.func, kernels run on the CPU only")
    if steps.batch_sizes is not None:
        return Reason("inside transforms of torch.func, kernels need sequences of the same length")
    if any("weight_hr" in direction.weights and direction.cell.declaration is None for direction in directions):
        return Reason("inside transforms of torch.func, kernels do not support proj_size")
    dtypes = {result_type(steps.data.dtype), *(v.dtype for v in (steps.data, *operands_of(list(directions))))}
    if dtypes not in ({torch.float32}, {torch.float64}):
        return Reason("inside transforms of torch.func, kernels need tensors of one type, float32 or float64")
    if not steps.data.shape[0]:
        return Reason("inside transforms of torch.func, kernels need at least one step")
    return None


@dataclass(frozen=True, eq=False)
class SingleCall(PlannedPasses):
    """`Passes` of one call. Its results are every state at every step and every final state of each direction.

    Tensors with W numbers per step have the shape (S, W). Inside transforms they have the shape (L, N, W), so that a
    batch axis fits between L and N. The argument `ragged` of methods is `Steps.batch_sizes`.

    Attributes:
        backend, plans: see `PlannedPasses`.
        save: whether a backward pass follows. Without it, only the visible states are results.
        dtype: the dtype of the results; None for that of the input.
        all_states: whether all states have this dtype, not only the output.
    """

    backend: str
    plans: tuple[Plan, ...]
    save: bool = True
    dtype: torch.dtype | None = None
    all_states: bool = True

    @cached_property
    def compiled(self) -> CompiledLayer:
        """The kernels of the layer."""
        return BACKENDS[self.backend].compile(self.plans)

    def by_direction(self, values: Sequence[T]) -> Iterator[tuple[Sequence[T], Sequence[T]]]:
        """See `Passes`."""
        return results_by_direction(self.plans, values)

    def forward(
        self,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        ragged: Tensor | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """See `Passes`."""
        steps, operands = self._kernel_arguments(tensors, resets, ragged)
        arguments = operands, self.all_states, self.save, self.dtype or steps.data.dtype, recordings or None
        flat = self.restore(self.compiled.forward(steps, *arguments), tensors[0], ragged)
        return flat[: state_result_count(self.plans)], without_final_states(self.plans, flat) if self.save else []

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
        ragged: Tensor | None = None,
        recordings: Sequence[Recording] | None = None,
        groups: int = 0,
    ) -> list[Tensor | None]:
        """See `Passes`."""
        if groups:
            return sum_by_group(self, tensors, saved, resets, d_visible, needed, groups)
        steps, operands = self._kernel_arguments(tensors, resets, ragged)
        d_results = _to_kernel_gradients(steps, [None if d is None else flatten_steps(d) for d in d_visible])
        saved = [flatten_steps(v) for v in saved]
        d = self.compiled.backward(steps, operands, saved, d_results, needed[0], needed[1:], recordings or None)
        return [None if d[0] is None else d[0].view_as(tensors[0]), *d[1:]]

    def empty_results(self, tensors: Sequence[Tensor], ragged: Tensor | None) -> list[Tensor]:
        """Empty results of the shapes of `forward`, with the saved tensors."""
        (data, *operands), results, saved = tensors, [], []
        dtype = self.dtype or data.dtype
        other_dtype = dtype if self.all_states else COMPUTE_DTYPE[data.dtype]
        for plan, own in by_direction(self.plans, operands):
            sizes = plan.sizes(own, data)
            widths, S = list(plan.state_widths(sizes).values()), data.shape[0]
            results.append(data.new_empty(S, widths[0], dtype=dtype))
            if self.all_states or self.save:
                results += [data.new_empty(S, n, dtype=other_dtype) for n in widths[1:]]
            results += [data.new_empty(sizes.N, n, dtype=dtype) for n in widths]
            for buffer, n in plan.kept_widths(sizes).items() if self.save else ():
                saved.append(data.new_empty(S, n, dtype=BACKENDS[self.backend].saved_type(buffer, dtype)))
        return [*results, *saved]

    def _kernel_arguments(
        self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Tensor | None
    ) -> tuple[Steps, Sequence[Tensor]]:
        data, *operands = map(flatten_steps, tensors)
        return Steps(data, ragged, None if resets is None else resets.flatten()), operands

    def batch_sizes(self, ragged: Tensor | None) -> Tensor | None:
        """See `PlannedPasses`."""
        return ragged

    def rows(self, tensors: Sequence[TensorOrNone], ragged: Tensor | None) -> list[TensorOrNone]:
        """See `PlannedPasses`."""
        return [None if v is None else flatten_steps(v) for v in tensors]

    def restore(self, flat: Sequence[Tensor], data: Tensor, ragged: Tensor | None) -> Sequence[Tensor]:
        """See `PlannedPasses`. `flat` may also have saved tensors after the results."""
        if data.dim() < 3:
            return flat
        final = [id(v) for _, own in self.by_direction(flat) for v in own]
        return [v if id(v) in final else v.unflatten(0, data.shape[:2]) for v in flat]


def _to_kernel_gradients(steps: Steps, d_results: Sequence[Tensor | None]) -> dict[int, Tensor]:
    """Return the gradients that are not None, by the index of the result, in the dtype and layout that kernels read."""
    dtype = COMPUTE_DTYPE[steps.data.dtype]
    present = {k: v for k, v in enumerate(d_results) if v is not None}
    return {k: to_contiguous_rows(v, dtype) for k, v in zip(present, in_memory([*present.values()]), strict=True)}


def split_steps(steps: Steps, directions: Sequence[Direction]) -> list[Tensor | None]:
    """Return the mask of resets, the input and the operands. Tensors with W numbers per step become (L, N, W)."""
    N = directions[0].initial[0].shape[0]

    def split(v: Tensor) -> Tensor:
        return v.unflatten(0, (-1, N))

    operands = list[Tensor]()
    for d in directions:
        noise = [split(v) if d.cell.noise[name].per_step else v for name, v in d.noise.items()]
        operands += [*d.weights.values(), *d.initial, *d.restart, *noise]
    return [None if steps.resets is None else split(steps.resets[:, None]), split(steps.data), *operands]


def transformed_call(backend: str, directions: Sequence[Direction], save: bool) -> SingleCall:
    """Return the passes of a call inside a transform. The backward pass records the factors of gradients."""
    costs = BACKENDS[backend].costs
    return _cached_call(backend, tuple([plan_of(d, costs, record_factors=True) for d in directions]), save)


@lru_cache(1024)
def _cached_call(backend: str, plans: tuple[Plan, ...], save: bool) -> SingleCall:
    return SingleCall(backend, plans, save)
