"""The kernels of a layer inside transforms of torch.func: vmap, grad and jvp, nested in any order.

- vmap: one call runs the sequences of all examples. With different parameters, there is one call per example.
- grad inside vmap: one call computes the factors of all weight gradients. The products of the factors are then summed
  for each example (`by_group.py`).
- jvp, and gradients of gradients: a call of the tangent cell (`tangents.py`).

In this module, tensors of W numbers per step have the shape (L, N, W), so that a batch axis fits between L and N.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from glassgate.engines import reference
from glassgate.engines.backend import CompiledLayer
from glassgate.engines.contract import Direction, Reason, Recording, Steps, result_type
from glassgate.engines.plan import (
    Plan,
    by_direction,
    directions_of,
    needed_weights,
    operands_of,
    plan_of,
    results_by_direction,
    state_result_count,
    without_final_states,
)
from glassgate.engines.registry import BACKENDS
from glassgate.engines.symbolic.tangent import is_tangent
from glassgate.engines.torch_names import functorch
from glassgate.engines.torch_op.by_group import weight_gradients
from glassgate.engines.torch_op.function import FlatFunction, unwrap_dead_wrappers
from glassgate.engines.torch_op.operators import to_kernel_gradients
from glassgate.engines.torch_op.tangents import tangent_arguments, values_and_tangents
from glassgate.engines.torch_op.vmap_batch import Batch


def why_not(steps: Steps, directions: Sequence[Direction]) -> Reason | None:
    """Why the kernels cannot run a call inside a transform; None if they can."""
    if steps.data.device.type != "cpu":
        return Reason("inside transforms of torch.func, kernels run on the CPU only")
    if steps.batch_sizes is not None:
        return Reason("inside transforms of torch.func, kernels need sequences of the same length")
    if any("weight_hr" in direction.weights for direction in directions):
        return Reason("inside transforms of torch.func, kernels do not support proj_size")
    dtypes = {result_type(steps.data.dtype), *(v.dtype for v in (steps.data, *operands_of(list(directions))))}
    if dtypes not in ({torch.float32}, {torch.float64}):
        return Reason("inside transforms of torch.func, kernels need tensors of one type, float32 or float64")
    if not steps.data.shape[0]:
        return Reason("inside transforms of torch.func, kernels need at least one step")
    return None


def run(backend: str, steps: Steps, directions: Sequence[Direction]) -> Sequence[Tensor]:
    """Run a call. Return the states at every step and the final states in the order of `CompiledLayer.forward`.

    Args:
        backend: the name of the backend.
        steps, directions: the arguments of the call.
    """
    tensors = [steps.data, *operands_of(list(directions))]
    save = torch.is_grad_enabled() and any(v.requires_grad for v in tensors)
    call = _static_call(backend, directions, save or _is_differentiated())
    results = LayerTransform.apply(call, *call.unflatten(steps, tensors[1:]))
    return [_flatten_steps(v) for v in results[: call.result_count]]


def _is_differentiated() -> bool:
    """Whether the caller runs inside a transform that computes gradients."""
    if functorch is None:
        return True
    active = functorch.get_interpreter_stack() or []
    return any(transform.key() == functorch.TransformType.Grad for transform in active)


@dataclass(frozen=True, eq=False)
class StaticCall:
    """The static part of a call: everything but tensors.

    Attributes:
        backend: the name of the backend.
        plans: one per direction.
        save: whether a backward pass follows.
    """

    backend: str
    plans: tuple[Plan, ...]
    save: bool

    @cached_property
    def compiled(self) -> CompiledLayer:
        """The kernels of the layer."""
        return BACKENDS[self.backend].compile(self.plans)

    @property
    def operand_count(self) -> int:
        """The number of operands of all directions."""
        return sum(plan.operand_count for plan in self.plans)

    @property
    def result_count(self) -> int:
        """The number of states among the results: the states at every step and the final states of all directions."""
        return state_result_count(self.plans)

    @cached_property
    def final(self) -> frozenset[int]:
        """The indices of final states among the results. They have a row per sequence, all others a row per step."""
        results = results_by_direction(self.plans, range(self.result_count))
        return frozenset([k for _, final in results for k in final])

    @cached_property
    def is_weight(self) -> list[bool]:
        """For the input and each operand, whether it is a parameter. All others have a row per sequence or per step."""
        return [False, *(k < len(plan.weights) for plan in self.plans for k in range(plan.operand_count))]

    @cached_property
    def differentiable(self) -> list[bool]:
        """For the input and each operand, whether it has a gradient."""
        return [True, *(has for plan in self.plans for has in plan.differentiable)]

    def unflatten(self, steps: Steps, operands: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the mask of resets, the input and the operands. Tensors with a row per step become (L, N, W)."""
        N = operands[len(self.plans[0].weights)].shape[0]

        def split_steps(v: Tensor) -> Tensor:
            return v.unflatten(0, (-1, N))

        rearranged = []
        for plan, own in by_direction(self.plans, operands):
            first = plan.operand_count - len(plan.noise)
            noise = zip(plan.noise, own[first:], strict=True)
            rearranged += [
                *own[:first],
                *(split_steps(v) if plan.cell.noise[name].per_step else v for name, v in noise),
            ]
        resets = None if steps.resets is None else split_steps(steps.resets[:, None])
        return [resets, split_steps(steps.data), *rearranged]

    def flatten(self, resets: Tensor | None, data: Tensor, operands: Sequence[Tensor]) -> tuple[Steps, list[Tensor]]:
        """The inverse of `unflatten`: return the steps and the operands. Tensors with a row per step become (S, W)."""
        mask = None if resets is None else resets.flatten()
        return Steps(_flatten_steps(data), None, mask), [_flatten_steps(v) for v in operands]


def _flatten_steps(v: Tensor) -> Tensor:
    """Flatten a tensor with a row per step, (L, N, W), to (S, W). Return other tensors unchanged."""
    return v.flatten(0, 1) if v.dim() == 3 else v


def _static_call(backend: str, directions: Sequence[Direction], save: bool) -> StaticCall:
    costs = BACKENDS[backend].costs
    return _cached_call(backend, tuple([plan_of(d, costs, record_factors=True) for d in directions]), save)


@lru_cache(1024)
def _cached_call(backend: str, plans: tuple[Plan, ...], save: bool) -> StaticCall:
    return StaticCall(backend, plans, save)


class LayerTransform(FlatFunction):
    """A call of a layer. Its results are the states and final states of each direction, then the saved tensors."""

    @staticmethod
    def forward(call: StaticCall, resets: Tensor | None, data: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
        steps, rows = call.flatten(resets, data, operands)
        results = call.compiled.forward(steps, rows, True, call.save, data.dtype)
        N = data.shape[1]
        return tuple([v if k in call.final else v.unflatten(0, (-1, N)) for k, v in enumerate(results)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.call, *tensors = inputs
        ctx.count = len(output)
        ctx.mark_non_differentiable(*output[ctx.call.result_count :])
        ctx.save_for_backward(*tensors, *without_final_states(ctx.call.plans, output))
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *d_output: Tensor | None) -> tuple[Tensor | None, ...]:
        call, needs = ctx.call, ctx.needs_input_grad[2:]
        needed = tuple([need and exists for need, exists in zip(needs, call.differentiable, strict=True)])
        reached = tuple([k for k, d in enumerate(d_output[: call.result_count]) if d is not None])
        gradients: Iterator[Tensor | None] = iter(())
        if reached and any(needed):
            request = GradientRequest(call, needed, reached)
            gradients = iter(LayerGradients.apply(request, *ctx.saved_tensors, *[d_output[k] for k in reached]))
        return None, None, *[next(gradients, None) if need else None for need in needed]

    @staticmethod
    def jvp(ctx: Any, _call: None, _resets: None, *d: Tensor | None) -> tuple[Tensor | None, ...]:
        _, tangents = _run_with_tangents(ctx.call, *unwrap_dead_wrappers(ctx.saved_tensors), d=d)
        return *tangents, *[None] * (ctx.count - len(tangents))

    @staticmethod
    def vmap(
        info: Any, in_dims: Sequence[Any], call: StaticCall, *tensors: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Any]:
        batch = Batch(info.batch_size, in_dims[1:], tensors)
        is_weight = [False, *call.is_weight]
        if batch.has_own_weights(is_weight):
            return batch.run_one_by_one(lambda *example: LayerTransform.apply(call, *example))
        results = LayerTransform.apply(call, *batch.fold(is_weight))
        return batch.unfold(results)


@dataclass(frozen=True)
class GradientRequest:
    """The non-tensor argument of `LayerGradients`.

    Attributes:
        call: the static part of the call whose gradients are computed.
        needed: whether the gradient of the input and of each operand is needed.
        reached: the indices of the results that have a gradient.
        groups: the number of groups of sequences. The gradients of parameters are summed over each group, and have an
            additional first axis of this length. With 0 groups, they are summed over all sequences, without this axis.
    """

    call: StaticCall
    needed: tuple[bool, ...]
    reached: tuple[int, ...]
    groups: int = 0

    @cached_property
    def is_weight_gradient(self) -> list[bool]:
        """For each needed gradient, whether it is the gradient of a parameter."""
        return [is_weight for is_weight, need in zip(self.call.is_weight, self.needed, strict=True) if need]

    def split(self, tensors: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Split the tensors into the input and the operands, the saved tensors, and the gradients of the results."""
        n, end = self.call.operand_count + 1, len(tensors) - len(self.reached)
        return [*tensors[:n]], [*tensors[n:end]], [*tensors[end:]]


class LayerGradients(FlatFunction):
    """The needed gradients of a call, from its tensors, the tensors that it saved, and the gradients of its results."""

    @staticmethod
    def forward(request: GradientRequest, resets: Tensor | None, data: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        call, groups = request.call, request.groups
        tensors = tuple([v.contiguous() for v in tensors])
        steps, rows = call.flatten(resets, data.contiguous(), tensors)
        (_, *operands), saved, d_reached = request.split((data, *rows))
        recordings = [Recording() for _ in call.plans]
        d_results = to_kernel_gradients(steps, _scatter(request.reached, d_reached, call.result_count))
        from_kernels = [
            need and not (groups and weight) for need, weight in zip(request.needed, call.is_weight, strict=True)
        ]
        d = call.compiled.backward(steps, operands, saved, d_results, from_kernels[0], from_kernels[1:], recordings)
        if groups:
            d[1:] = _sum_by_group(request, steps, operands, saved, recordings, d[1:])
        if d[0] is not None:
            d[0] = d[0].view_as(data)
        return tuple([v for v, need in zip(d, request.needed, strict=True) if need and v is not None])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.request, *tensors = inputs
        ctx.count = len(tensors)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *dd: Tensor | None) -> tuple[Tensor | None, ...]:
        request, (resets, *tensors) = ctx.request, unwrap_dead_wrappers(ctx.saved_tensors)
        call, (inputs, saved, d_reached) = request.call, request.split(tensors)
        if request.groups:
            values, pullback, *_ = torch.func.vjp(_gradients_by_group(request, resets, saved), *inputs, *d_reached)
            second = pullback(tuple([torch.zeros_like(v) if d is None else d for v, d in zip(values, dd, strict=True)]))
        else:
            d = _scatter([k for k, need in enumerate(request.needed) if need], dd, len(inputs))

            def tangents(*inputs: Tensor) -> tuple[Tensor, ...]:
                d_results = _run_with_tangents(call, resets, *inputs, d=d)[1]
                return tuple([d_results[k] for k in request.reached])

            values, pullback, *_ = torch.func.vjp(tangents, *inputs)
            second = *pullback(tuple(d_reached)), *values
        d_inputs = [v if exists else None for v, exists in zip(second, call.differentiable, strict=False)]
        return None, None, *d_inputs, *[None] * len(saved), *second[len(inputs) :]

    @staticmethod
    def jvp(ctx: Any, _request: None, _resets: None, *d: Tensor | None) -> tuple[Tensor | None, ...]:
        request, (resets, *tensors) = ctx.request, unwrap_dead_wrappers(ctx.saved_tensors)
        call, (inputs, saved, d_reached) = request.call, request.split(tensors)
        d_inputs, _, dd_reached = request.split(d)
        dd_reached = [torch.zeros_like(v) if dd is None else dd for v, dd in zip(d_reached, dd_reached, strict=True)]
        if request.groups:
            d_inputs = [torch.zeros_like(v) if d_v is None else d_v for v, d_v in zip(inputs, d_inputs, strict=True)]
            primals, tangents = (*inputs, *d_reached), (*d_inputs, *dd_reached)
            return torch.func.jvp(_gradients_by_group(request, resets, saved), primals, tangents)[1]

        def reached_values_and_tangents(*inputs: Tensor) -> tuple[Tensor, ...]:
            values, tangents = _run_with_tangents(call, resets, *inputs, d=d_inputs)
            return tuple([results[k] for results in (values, tangents) for k in request.reached])

        # The product rule applies, because the gradients depend on the inputs and on the gradients of the results.
        _, pullback, *_ = torch.func.vjp(reached_values_and_tangents, *inputs)
        return tuple([v for v, need in zip(pullback((*dd_reached, *d_reached)), request.needed, strict=True) if need])

    @staticmethod
    def vmap(
        info: Any, in_dims: Sequence[Any], request: GradientRequest, *tensors: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Any]:
        batch = Batch(info.batch_size, in_dims[1:], tensors)
        is_weight = [False, *request.call.is_weight]
        is_weight += [False] * (len(tensors) - len(is_weight))
        if batch.has_own_weights(is_weight):
            return batch.run_one_by_one(lambda *example: LayerGradients.apply(request, *example))
        groups = info.batch_size * max(request.groups, 1) if any(request.is_weight_gradient) else 0
        gradients = LayerGradients.apply(replace(request, groups=groups), *batch.fold(is_weight))
        return batch.unfold(gradients, request.is_weight_gradient, request.groups)


def _scatter(indices: Sequence[int], values: Sequence[Tensor | None], count: int) -> list[Tensor | None]:
    """Return a list of `count` items, with the values at these indices and None elsewhere."""
    by_index = dict(zip(indices, values, strict=True))
    return [by_index.get(k) for k in range(count)]


def _sum_by_group(
    request: GradientRequest,
    steps: Steps,
    operands: Sequence[Tensor],
    states: Sequence[Tensor],
    recordings: Sequence[Recording],
    d: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Return `d`, in which each gradient of a parameter is replaced by the gradients of all groups.

    Args:
        request: the requested gradients.
        steps, operands: the arguments of the call.
        states: the states at every step of all directions.
        recordings: the recorded factors of the gradients, one recording per direction.
        d: the gradient of each operand.
    """
    gradients, at, remaining = list(d), 0, iter(states)
    plans = request.call.plans
    needed = needed_weights(plans, request.needed[1:])
    for (plan, own), recording, names in zip(by_direction(plans, operands), recordings, needed, strict=True):
        by_name = dict(zip(plan.equations.state, remaining, strict=False))
        d_weights = weight_gradients(plan, steps, plan.direction(own), by_name, recording.grad, request.groups, names)
        for k, name in enumerate(plan.weights):
            gradients[at + k] = d_weights.get(name)
        at += plan.operand_count
    return gradients


def _gradients_by_group(
    request: GradientRequest, resets: Tensor | None, saved: Sequence[Tensor]
) -> Callable[..., tuple[Tensor, ...]]:
    """A function from the inputs and the gradients of results to the requested gradients. It runs group by group.

    Unlike `LayerGradients` with groups, this function is differentiable.
    """
    call, request_of_group = request.call, replace(request, groups=0)
    is_weight = [*call.is_weight, *[False] * (len(saved) + len(request.reached))]

    def gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
        all_tensors = [*tensors[: len(call.is_weight)], *saved, *tensors[len(call.is_weight) :]]

        def select_group(v: Tensor, group: int) -> Tensor:
            return v.unflatten(v.dim() - 2, (request.groups, -1)).select(v.dim() - 2, group)

        by_group = []
        for group in range(request.groups):
            own = [v if weight else select_group(v, group) for v, weight in zip(all_tensors, is_weight, strict=True)]
            mask = None if resets is None else select_group(resets, group)
            by_group.append(LayerGradients.apply(request_of_group, mask, *own))
        by_gradient = zip(zip(*by_group, strict=True), request.is_weight_gradient, strict=True)
        return tuple([torch.stack(v) if is_weight else torch.cat(v, v[0].dim() - 2) for v, is_weight in by_gradient])

    return gradients


def _run_with_tangents(
    call: StaticCall, resets: Tensor | None, data: Tensor, *operands: Tensor, d: Sequence[Tensor | None]
) -> tuple[list[Tensor], list[Tensor]]:
    """Run a call. Return its results and their tangents. `d` contains the tangents of the input and the operands."""
    steps, rows = call.flatten(resets, data, operands)
    d_data, *d_operands = [None if v is None else _flatten_steps(v) for v in d]
    steps, directions = tangent_arguments(steps, directions_of(call.plans, rows), d_data, d_operands)
    if any(is_tangent(plan.equations) for plan in call.plans):
        # Kernels of third derivatives would take longer to compile than the reference engine takes to run.
        results = [
            v
            for result in reference.run(steps, directions, all_states=True)
            for v in (*(v.unflatten(0, data.shape[:2]) for v in result.states), *result.final)
        ]
    else:
        tangent = _static_call(call.backend, directions, call.save)
        results = [*LayerTransform.apply(tangent, *tangent.unflatten(steps, operands_of(directions)))]
    return values_and_tangents(results, call.plans)
