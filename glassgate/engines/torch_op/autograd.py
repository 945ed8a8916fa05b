"""The autograd function of a layer, and the function of its gradients.

Eager calls, transforms of torch.func and the operator of torch.compile and torch.export (`operators.py`) use them.

- vmap: one call runs the sequences of all examples. With different parameters, there is one call per example.
- grad inside vmap: one call computes the factors of all weight gradients. The products of the factors are then summed
  for each example (`by_group.py`).
- jvp, and gradients of gradients: a call of the tangent cell (`tangents.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from glassgate.engines import reference
from glassgate.engines.backend import Passes
from glassgate.engines.contract import Direction, Recording, Steps, is_batched
from glassgate.engines.plan import (
    differentiable_tensors,
    operands_of,
    plan_of,
    state_result_count,
    weight_tensors,
    without_final_states,
)
from glassgate.engines.registry import BACKENDS
from glassgate.engines.symbolic.tangent import is_tangent
from glassgate.engines.torch_names import dispatch_mode_count, is_legacy_batch, top_transform
from glassgate.engines.torch_op.calls import SingleCall, split_steps, transformed_call
from glassgate.engines.torch_op.function import FlatFunction, is_differentiated, pull_back, unwrap_dead_wrappers
from glassgate.engines.torch_op.tangents import tangent_arguments, tangents_in_torch, values_and_tangents
from glassgate.engines.torch_op.vmap_batch import Batch, flatten_steps


class LayerFunction(FlatFunction):
    """A call of a layer. Its arguments are:

    - the passes of the call
    - the layout of sequences of different lengths, or None; see `Passes.forward`
    - the recordings, one per direction if gates are recorded
    - a list to which the call adds the tensors that its backward pass reads. If it is None, they are results too.
    - the mask of resets, or None
    - the tensors of the call; see `Passes.forward`
    """

    @staticmethod
    def forward(
        passes: Passes,
        layout: Any,
        recordings: Sequence[Recording] | None,
        saved: list[Tensor] | None,
        resets: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        visible, to_save = passes.forward(tensors, resets, layout, recordings)
        if saved is None:
            return (*visible, *[v for v in to_save if all([v is not own for own in visible])])
        saved += to_save
        return tuple(visible)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        passes, layout, recordings, saved, resets, *tensors = inputs
        if saved is None:
            saved = without_final_states(passes.plans, output)
            ctx.mark_non_differentiable(*output[state_result_count(passes.plans) :])
            ctx.save_for_forward(resets, *tensors)
        ctx.call = passes, layout, recordings, len(tensors), len(output)
        ctx.save_for_backward(resets, *tensors, *saved)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        passes, layout, recordings, n, _ = ctx.call
        resets, *tensors = ctx.saved_tensors
        tensors, saved, needed = tensors[:n], tensors[n:], ctx.needs_input_grad[5:]
        for d in d_results:
            if d is not None and is_legacy_batch(d):
                d_tensors = _gradients_in_torch(passes, layout, resets, tensors, d_results, needed)
                return None, None, None, None, None, *d_tensors
        if recordings:
            for recording, (d_states, d_final) in zip(recordings, passes.by_direction(d_results), strict=True):
                if recording.on_gradients is not None:
                    recording.on_gradients((d_states[0], *d_final))
            if recordings[0].skips_input:
                needed = False, *needed[1:]
        if torch.is_grad_enabled() or top_transform() is not None:
            d_tensors = gradients_of_call(passes, layout, resets, tensors, saved, d_results, needed)
        else:
            d_tensors = passes.backward(tensors, saved, resets, d_results, needed, layout, recordings)
        return None, None, None, None, None, *d_tensors

    @staticmethod
    def jvp(ctx: Any, *d: Tensor | None) -> tuple[Tensor | None, ...]:
        passes, _, _, _, result_count = ctx.call
        resets, *tensors = unwrap_dead_wrappers(ctx.saved_tensors)
        _, tangents = _run_with_tangents(passes, None, resets, tensors, d[5:])
        return *tangents, *[None] * (result_count - len(tangents))

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[Any], passes: Passes, *rest: Any) -> tuple[tuple[Tensor, ...], Any]:
        static, tensors, is_weight = (passes, *rest[:3]), rest[3:], [False, *weight_tensors(passes.plans)]
        batch = Batch(info.batch_size, in_dims[4:], tensors)
        if batch.has_own_weights(is_weight):
            return batch.run_one_by_one(lambda *example: LayerFunction.apply(*static, *example))
        return batch.unfold(LayerFunction.apply(*static, *batch.fold(is_weight)))


class InputProductFunction(LayerFunction):
    """The call of a layer whose step returns its pre-activations. torch multiplies a batch of gradients."""

    @staticmethod
    def backward(ctx: Any, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        d = d_results[0]
        if d is None or not is_batched(d):
            return LayerFunction.backward(ctx, *d_results)
        (*_, n, _), (_, data, weight, *others) = ctx.call, ctx.saved_tensors
        d_others = [d.sum(0) if v.dim() == 1 else None for v in others[: n - 2]]  # the bias if any, and the state
        return *(None,) * 5, d @ weight, d.T @ data, *d_others


def run(
    passes: Passes,
    layout: Any,
    resets: Tensor | None,
    tensors: Sequence[Tensor | None],
    recordings: Sequence[Recording] | None = None,
    function: type[LayerFunction] = LayerFunction,
) -> Sequence[Tensor]:
    """Run a training call. Return every state at every step and every final state, in the order of `CompiledLayer`."""
    return function.apply(passes, layout, recordings, None, resets, *tensors)[: state_result_count(passes.plans)]


def run_transformed(backend: str, steps: Steps, directions: list[Direction]) -> list[Tensor]:
    """Run a call inside a transform. Return the same as `run`."""
    operands = operands_of(directions)
    save = torch.is_grad_enabled() and any(v.requires_grad for v in (steps.data, *operands))
    passes = transformed_call(backend, directions, save or is_differentiated())
    resets, *tensors = split_steps(steps, directions)
    return [flatten_steps(v) for v in run(passes, None, resets, tensors)]


def gradients_of_call(
    passes: Passes,
    layout: Any,
    resets: Tensor | None,
    tensors: Sequence[Tensor],
    saved: Sequence[Tensor],
    d_results: Sequence[Tensor | None],
    needed: Sequence[bool],
    apply: Callable[..., Sequence[Tensor]] | None = None,
) -> list[Tensor | None]:
    """The gradients of the tensors of a call, by `LayerGradients` or another function with its arguments."""
    pairs = zip(needed, differentiable_tensors(passes.plans), strict=True)
    needed = tuple([need and exists for need, exists in pairs])
    reached = tuple([k for k, d in enumerate(d_results) if d is not None])
    gradients: Iterator[Tensor] = iter(())
    if reached and any(needed):
        # The second derivative does not use the saved results. Without `detach`, autograd would run the backward pass
        # of the layer once more for them.
        constants, d_reached = [v.detach() for v in saved], [d_results[k] for k in reached]
        request = GradientRequest(passes, needed, reached, len(d_results))
        gradients = iter((apply or LayerGradients.apply)(request, layout, resets, *tensors, *constants, *d_reached))
    return [next(gradients, None) if need else None for need in needed]


@dataclass(frozen=True)
class GradientRequest:
    """The request for gradients, an argument of `LayerGradients`.

    Attributes:
        passes: the passes of the call whose gradients are computed.
        needed: whether the gradient of the input and of each operand is needed.
        reached: the indices of the results that have a gradient.
        result_count: the number of results of the call.
        groups: see `Passes.backward`.
    """

    passes: Passes
    needed: tuple[bool, ...]
    reached: tuple[int, ...]
    result_count: int
    groups: int = 0

    @cached_property
    def is_weight_gradient(self) -> list[bool]:
        """For each needed gradient, whether it is the gradient of a parameter."""
        pairs = zip(weight_tensors(self.passes.plans), self.needed, strict=True)
        return [is_weight for is_weight, need in pairs if need]

    def split(self, tensors: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Split the tensors into the input and the operands, the saved tensors, and the gradients of the results."""
        n, end = len(self.needed), len(tensors) - len(self.reached)
        return [*tensors[:n]], [*tensors[n:end]], [*tensors[end:]]


class LayerGradients(FlatFunction):
    """The needed gradients of a call. Its arguments are the request, the layout and the mask of resets of the call, its
    tensors, the tensors that it saved, and the gradients of its results.
    """

    @staticmethod
    def forward(request: GradientRequest, layout: Any, resets: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        inputs, saved, d_reached = request.split([v.contiguous() for v in tensors])
        d_results = _scatter(request.reached, d_reached, request.result_count)
        d = request.passes.backward(inputs, saved, resets, d_results, request.needed, layout, groups=request.groups)
        return tuple([v for v, need in zip(d, request.needed, strict=True) if need and v is not None])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
        ctx.request, ctx.layout, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *dd: Tensor | None) -> tuple[Tensor | None, ...]:
        """The second derivative.

        Let s be the inner product of `dd` and the gradients. It is equal to the inner product of the gradients of the
        results and the tangents of the results in the direction `dd`. The gradient of s with respect to the gradients
        of the results is therefore these tangents. All other gradients of s are computed by backpropagation through
        them.
        """
        request, (resets, *tensors) = ctx.request, unwrap_dead_wrappers(ctx.saved_tensors)
        inputs, saved, d_reached = request.split(tensors)
        if request.groups:
            values, pullback, *_ = torch.func.vjp(_gradients_by_group(request, resets, saved), *inputs, *d_reached)
            second = pullback(tuple([torch.zeros_like(v) if d is None else d for v, d in zip(values, dd, strict=True)]))
            d_inputs, d_d_reached = second[: len(inputs)], second[len(inputs) :]
        else:
            d = _scatter([k for k, need in enumerate(request.needed) if need], dd, len(inputs))

            def tangents(*inputs: Tensor) -> tuple[Tensor, ...]:
                d_results = _run_with_tangents(request.passes, ctx.layout, resets, inputs, d)[1]
                return tuple([d_results[k].to(v.dtype) for k, v in zip(request.reached, d_reached, strict=True)])

            d_inputs, d_d_reached = pull_back(tangents, inputs, d_reached)
        exist = differentiable_tensors(request.passes.plans)
        d_inputs = [v if exists else None for v, exists in zip(d_inputs, exist, strict=True)]
        return None, None, None, *d_inputs, *[None] * len(saved), *d_d_reached

    @staticmethod
    def jvp(ctx: Any, _request: None, _layout: None, _resets: None, *d: Tensor | None) -> tuple[Tensor, ...]:
        request, (resets, *tensors) = ctx.request, unwrap_dead_wrappers(ctx.saved_tensors)
        inputs, saved, d_reached = request.split(tensors)
        d_inputs, _, dd_reached = request.split(d)
        dd_reached = [torch.zeros_like(v) if dd is None else dd for v, dd in zip(d_reached, dd_reached, strict=True)]
        if request.groups:
            d_inputs = [torch.zeros_like(v) if d_v is None else d_v for v, d_v in zip(inputs, d_inputs, strict=True)]
            primals, tangents = (*inputs, *d_reached), (*d_inputs, *dd_reached)
            return torch.func.jvp(_gradients_by_group(request, resets, saved), primals, tangents)[1]

        def reached_values_and_tangents(*inputs: Tensor) -> tuple[Tensor, ...]:
            values, tangents = _run_with_tangents(request.passes, None, resets, inputs, d_inputs)
            return tuple([results[k] for results in (values, tangents) for k in request.reached])

        # The product rule applies, because the gradients depend on the inputs and on the gradients of the results.
        _, pullback, *_ = torch.func.vjp(reached_values_and_tangents, *inputs)
        return tuple([v for v, need in zip(pullback((*dd_reached, *d_reached)), request.needed, strict=True) if need])

    @staticmethod
    def vmap(
        info: Any, in_dims: Sequence[Any], request: GradientRequest, layout: Any, *tensors: Any
    ) -> tuple[tuple[Tensor, ...], Any]:
        batch, plans = Batch(info.batch_size, in_dims[2:], tensors), request.passes.plans
        is_weight = [False, *weight_tensors(plans)]
        is_weight += [False] * (len(tensors) - len(is_weight))
        if batch.has_own_weights(is_weight) or not plans[0].records_factors:
            return batch.run_one_by_one(lambda *example: LayerGradients.apply(request, layout, *example))
        groups = info.batch_size * max(request.groups, 1) if any(request.is_weight_gradient) else 0
        gradients = LayerGradients.apply(replace(request, groups=groups), None, *batch.fold(is_weight))
        return batch.unfold(gradients, request.is_weight_gradient, request.groups)


def _gradients_in_torch(
    passes: Passes,
    layout: Any,
    resets: Tensor | None,
    tensors: Sequence[Tensor],
    d_results: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """The needed gradients of a call for a batch of gradients, which has no memory."""
    with torch.enable_grad():
        leaves = [v.view_as(v) if need else v for v, need in zip(tensors, needed, strict=True)]
        results = passes.in_torch(leaves, resets, layout)
    pairs = [(v, d) for v, d in zip(results, d_results, strict=False) if d is not None]
    own, options = [*compress(leaves, needed)], {"create_graph": torch.is_grad_enabled(), "allow_unused": True}
    gradients = iter(torch.autograd.grad([v for v, _ in pairs], own, [d for _, d in pairs], **options))
    return [next(gradients) if need else None for need in needed]


def _scatter(indices: Sequence[int], values: Sequence[Tensor | None], count: int) -> list[Tensor | None]:
    """Return a list of `count` items, with the values at these indices and None elsewhere."""
    by_index = dict(zip(indices, values, strict=True))
    return [by_index.get(k) for k in range(count)]


def _gradients_by_group(
    request: GradientRequest, resets: Tensor | None, saved: Sequence[Tensor]
) -> Callable[..., tuple[Tensor, ...]]:
    """A function from the inputs and the gradients of results to the requested gradients. It runs group by group.

    Unlike `LayerGradients` with groups, this function is differentiable.
    """
    n, request_of_group = len(request.needed), replace(request, groups=0)
    is_weight = [*weight_tensors(request.passes.plans), *[False] * (len(saved) + len(request.reached))]

    def gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
        all_tensors = [*tensors[:n], *saved, *tensors[n:]]

        def select_group(v: Tensor, group: int) -> Tensor:
            return v.unflatten(v.dim() - 2, (request.groups, -1)).select(v.dim() - 2, group)

        by_group = []
        for group in range(request.groups):
            own = [v if weight else select_group(v, group) for v, weight in zip(all_tensors, is_weight, strict=True)]
            mask = None if resets is None else select_group(resets, group)
            by_group.append(LayerGradients.apply(request_of_group, None, mask, *own))
        by_gradient = zip(zip(*by_group, strict=True), request.is_weight_gradient, strict=True)
        return tuple([torch.stack(v) if is_weight else torch.cat(v, v[0].dim() - 2) for v, is_weight in by_gradient])

    return gradients


def _run_with_tangents(
    passes: Passes, layout: Any, resets: Tensor | None, tensors: Sequence[Tensor], d: Sequence[Tensor | None]
) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Run a call. Return its results and their tangents.

    Args:
        passes, layout, resets, tensors: the arguments of the call. Tensors may have different dtypes.
        d: the tangents of the tensors; None for zero.
    """
    planned = passes.planned
    if planned is None:
        return tangents_in_torch(lambda *own: passes.in_torch(own, resets, layout), tensors, d)
    plans, backend, dtype = planned.plans, planned.backend, tensors[1].dtype
    d_data, *d_operands = planned.rows([None if v is None else v.to(dtype) for v in d], layout)
    steps, directions = tangent_arguments(*planned.arguments(tensors, resets, layout), d_data, d_operands)
    results: Sequence[Tensor]
    if backend != "cpu" or dispatch_mode_count() or any(is_tangent(plan.equations) for plan in plans):
        # Kernels of third derivatives would take longer to compile than the reference engine takes to run.
        results = reference.flat_results(steps, directions)
    elif plans[0].records_factors:
        results = run_transformed(backend, steps, directions)
    else:
        costs = BACKENDS[backend].costs
        call = SingleCall(backend, tuple([plan_of(direction, costs) for direction in directions]))
        results = run(call, steps.batch_sizes, steps.resets, (steps.data, *operands_of(directions)))
    values, tangents = (planned.restore(v, tensors[0], layout) for v in values_and_tangents(results, plans))
    return values, tangents
