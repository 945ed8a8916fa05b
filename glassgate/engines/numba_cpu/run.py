"""Forward and backward pass of a layer on flat tensors of any supported dtype; results have the caller's dtype."""

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from glassgate.engines.contract import Recording, Steps, terms_allowed
from glassgate.engines.memory import COMPUTED_IN, computable, first_rows, unwritten
from glassgate.engines.numba_cpu.amx import is_faster
from glassgate.engines.numba_cpu.loops.batch import BatchLayout, batch_layout
from glassgate.engines.numba_cpu.passes import backward_pass, forward_pass
from glassgate.engines.numba_cpu.plan import are_few
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.plan import Plan, Sizes, by_direction


def forward(
    steps: Steps,
    plans: Sequence[Plan],
    given: Sequence[Tensor],
    all_states: bool,
    save: bool,
    dtype: torch.dtype,
    recordings: Sequence[Recording] | None = None,
) -> list[Tensor]:
    """The states after each step and the final states of each direction; with `save`, also the saved tensors.

    Args:
        steps: the layer's input.
        plans, given: the plan and the tensors of its directions, see `plan.py`.
        all_states: whether to return all states at every step, not only the output.
        save: whether to save tensors for a backward pass. It reads every state; states that are not requested keep the
            dtype of the computation.
        dtype: of the results.
        recordings: one per direction, to be filled with the gates; None to record nothing.
    """
    S = steps.data.shape[0]
    layout, data, computed = _computable(steps, plans, given)
    sizes = _sizes(plans, computed, data, terms_of(dtype, plans, given))
    few = tuple([are_few(layout.rows, own) for own in sizes])
    run = forward_pass(tuple(plans), sizes, dtype, all_states or save, save, few, host())
    found = iter(run.results(layout, (data, *computed), steps.resets, run.memory(S), S))
    results: list[Tensor] = []
    kept: list[Tensor] = []
    for d, (states, final, saved, shown) in enumerate(run.counts):
        results += [v.to(dtype) if k == 0 or all_states else v for k, v in enumerate(islice(found, states))]
        results += [v.to(dtype) for v in islice(found, final)]
        kept += islice(found, saved)
        if recordings:
            recordings[d].values = dict(zip(plans[d].trace.recorded, islice(found, shown), strict=True))
    return [*results, *kept]


def backward(
    steps: Steps,
    plans: Sequence[Plan],
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: dict[int, Tensor],
    needs_d_data: bool,
    needed: Sequence[bool] | None = None,
    recordings: Sequence[Recording] | None = None,
) -> list[Tensor | None]:
    """The gradients of the input and of each tensor of `given`; None where there is none.

    Args:
        steps, plans, given: as in `forward`.
        flat: the tensors that `forward` returned with `save`, without the final states.
        d_results: the gradients of some of the states and final states of `forward`, by position; the others are zero.
        needs_d_data: whether to compute the gradient of the input.
        needed: whether each tensor of `given` needs a gradient; all do if None.
        recordings: as in `forward`.
    """
    S, D = steps.data.shape
    layout, data, computed = _computable(steps, plans, given)
    sizes = _sizes(plans, computed, data, terms_of(flat[0].dtype, plans, given))
    wanted, d_states, d_final, at, first = [], [], [], 0, 0
    for plan in plans:
        needs = (True,) * plan.given if needed is None else needed[first : first + plan.given]
        wanted.append(tuple([name for name, need in zip(plan.weights, needs, strict=False) if need]))
        count = len(plan.equations.state)
        d = [d_results.get(place) for place in range(at, at + 2 * count)]
        d_states.append(d[:count])
        d_final.append(d[count:])
        first, at = first + plan.given, at + 2 * count
    run = backward_pass(tuple(plans), sizes, tuple(wanted), needs_d_data, host())
    d_data = unwritten(S, D, layout.rows, data) if needs_d_data else None
    saved = computable(flat, data.dtype)
    gradients, shown = run.gradients(layout, (data, *computed), saved, steps.resets, d_states, d_final, d_data, S)
    for recording, grad in zip(recordings or (), shown, strict=bool(recordings)):
        recording.add(grad)
    if computed is given and steps.data.dtype == data.dtype:
        return [d_data, *gradients]
    return [
        v if v is None else v.to(of.dtype) for v, of in zip((d_data, *gradients), (steps.data, *given), strict=True)
    ]


def _sizes(plans: Sequence[Plan], given: Sequence[Tensor], data: Tensor, terms: int) -> tuple[Sizes, ...]:
    return tuple([plan.sizes(own, data, terms) for plan, own in by_direction(plans, given)])


def terms_of(dtype: torch.dtype, plans: Sequence[Plan], given: Sequence[Tensor]) -> int:
    """`Sizes.terms` of a call: the requested terms if bfloat16 products are faster for its batch size, else 0."""
    terms = terms_requested(dtype, given)
    return terms if terms and is_faster(terms, _sequences(plans, given)) else 0


def terms_requested(dtype: torch.dtype, given: Sequence[Tensor]) -> int:
    """The requested terms: 1 for bfloat16 results, the choice of torch's precision settings for float32, else 0."""
    of_results = {torch.bfloat16: 1, torch.float32: terms_allowed()}
    return of_results.get(dtype, 0) if given[0].dtype is torch.float32 else 0


def _sequences(plans: Sequence[Plan], given: Sequence[Tensor]) -> int:
    """The number of sequences in a batch."""
    return given[len(plans[0].weights)].shape[0]


def _computable(
    steps: Steps, plans: Sequence[Plan], given: Sequence[Tensor]
) -> tuple[BatchLayout, Tensor, Sequence[Tensor]]:
    """The batch layout, and all tensors in the dtype and memory layout that the kernels read."""
    dtype = COMPUTED_IN[steps.data.dtype]
    layout = batch_layout(steps.batch_sizes, steps.data.shape[0], _sequences(plans, given))
    assert steps.resets is None or steps.resets.numel() >= layout.rows, "resets have a value for every row"
    (data,) = computable((first_rows(steps.data, layout.rows),), dtype)
    return layout, data, computable(given, dtype)
