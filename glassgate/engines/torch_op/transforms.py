"""The kernels of a layer under the transforms of torch.func: vmap, grad and jvp, nested in any order.

- vmap: the sequences of all examples become one batch. If parameters differ between examples, each example is a call.
- grad under vmap: the kernels record the factors of the weight gradients, and each example sums its own products.
- jvp, and gradients of gradients: a call of the tangent cell.

Tensors with a row per step are (L, N, W) here, so that a batch axis fits between L and N.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.utils import unwrap_dead_wrappers

from glassgate.engines import reference
from glassgate.engines.backend import Compiled
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
    without_final,
)
from glassgate.engines.registry import BACKENDS
from glassgate.engines.symbolic.tangent import is_tangent
from glassgate.engines.torch_op.by_group import weight_gradients
from glassgate.engines.torch_op.function import FlatFunction
from glassgate.engines.torch_op.operators import readable_gradients
from glassgate.engines.torch_op.tangents import tangent_call, values_and_tangents
from glassgate.engines.torch_op.vmap_batch import Batch


def why_not(steps: Steps, directions: Sequence[Direction]) -> Reason | None:
    """Why the kernels cannot run a call inside a transform; None if they can."""
    if steps.data.device.type != "cpu":
        return Reason("kernels have rules for transforms of torch.func on the CPU only")
    if steps.batch_sizes is not None:
        return Reason("inside transforms of torch.func kernels need sequences of the same length")
    if any("weight_hr" in direction.weights for direction in directions):
        return Reason("kernels have no rule for transforms of torch.func of layers with proj_size")
    dtypes = {result_type(steps.data.dtype), *(v.dtype for v in (steps.data, *operands_of(list(directions))))}
    if dtypes not in ({torch.float32}, {torch.float64}):
        return Reason("inside transforms of torch.func kernels need tensors of one type, float32 or float64")
    if not steps.data.shape[0]:
        return Reason("inside transforms of torch.func kernels need at least one step")
    return None


def run(backend: str, steps: Steps, directions: Sequence[Direction]) -> Sequence[Tensor]:
    """The states at every step and the final states of each direction, in the order of `Compiled.forward`.

    Args:
        backend: the name of the backend.
        steps, directions: the call.
    """
    tensors = [steps.data, *operands_of(list(directions))]
    stack = torch._C._functorch.get_interpreter_stack() or []
    save = torch.is_grad_enabled() and any(v.requires_grad for v in tensors)
    call = _static_call(backend, directions, save or any(each.key() == TransformType.Grad for each in stack))
    results = LayerTransform.apply(call, *call.by_step(steps, tensors[1:]))
    return [_rows(v) for v in results[: call.result_count]]


@dataclass(frozen=True, eq=False)
class StaticCall:
    """The static part of a call.

    Attributes:
        backend: the name of the backend.
        plans: one per direction.
        save: whether a backward pass follows.
    """

    backend: str
    plans: tuple[Plan, ...]
    save: bool

    @cached_property
    def compiled(self) -> Compiled:
        """The kernels."""
        return BACKENDS[self.backend].compile(self.plans)

    @property
    def operand_count(self) -> int:
        """The number of operands of all directions."""
        return sum(plan.operand_count for plan in self.plans)

    @property
    def result_count(self) -> int:
        """The number of states at every step and final states of all directions."""
        return state_result_count(self.plans)

    @cached_property
    def final(self) -> frozenset[int]:
        """The indices of final states among the results. They have a row per sequence, all others a row per step."""
        results = results_by_direction(self.plans, range(self.result_count))
        return frozenset([k for _, final in results for k in final])

    @cached_property
    def is_weight(self) -> list[bool]:
        """For the input and each operand, whether it is a parameter, which has no row per sequence."""
        return [False, *(k < len(plan.weights) for plan in self.plans for k in range(plan.operand_count))]

    @cached_property
    def differentiable(self) -> list[bool]:
        """For the input and each operand, whether it has a gradient."""
        return [True, *(has for plan in self.plans for has in plan.differentiable)]

    def by_step(self, steps: Steps, operands: Sequence[Tensor]) -> list[Tensor | None]:
        """The mask of resets, the input and the operands. Tensors with a row per step become (L, N, W)."""
        N = operands[len(self.plans[0].weights)].shape[0]

        def steps_of(v: Tensor) -> Tensor:
            return v.unflatten(0, (-1, N))

        rearranged = []
        for plan, own in by_direction(self.plans, operands):
            first = plan.operand_count - len(plan.noise)
            noise = zip(plan.noise, own[first:], strict=True)
            rearranged += [*own[:first], *(steps_of(v) if plan.cell.noise[name].per_step else v for name, v in noise)]
        resets = None if steps.resets is None else steps_of(steps.resets[:, None])
        return [resets, steps_of(steps.data), *rearranged]

    def flat(self, resets: Tensor | None, data: Tensor, operands: Sequence[Tensor]) -> tuple[Steps, list[Tensor]]:
        """The inverse of `by_step`: the steps and the operands. Tensors with a row per step become (S, W)."""
        mask = None if resets is None else resets.flatten()
        return Steps(_rows(data), None, mask), [_rows(v) for v in operands]


def _rows(v: Tensor) -> Tensor:
    """A tensor with a row per step as (S, W). Other tensors are unchanged."""
    return v.flatten(0, 1) if v.dim() == 3 else v


def _static_call(backend: str, directions: Sequence[Direction], save: bool) -> StaticCall:
    costs = BACKENDS[backend].costs
    return _interned_call(backend, tuple([plan_of(d, costs, record_factors=True) for d in directions]), save)


@lru_cache(1024)
def _interned_call(backend: str, plans: tuple[Plan, ...], save: bool) -> StaticCall:
    return StaticCall(backend, plans, save)


class LayerTransform(FlatFunction):
    """A call of a layer. It returns the states and final states of each direction, then the saved tensors."""

    @staticmethod
    def forward(call: StaticCall, resets: Tensor | None, data: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
        steps, rows = call.flat(resets, data, operands)
        results = call.compiled.forward(steps, rows, True, call.save, data.dtype)
        N = data.shape[1]
        return tuple([v if k in call.final else v.unflatten(0, (-1, N)) for k, v in enumerate(results)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.call, *tensors = inputs
        ctx.count = len(output)
        ctx.mark_non_differentiable(*output[ctx.call.result_count :])
        ctx.save_for_backward(*tensors, *without_final(ctx.call.plans, output))
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *d_output: Tensor | None) -> tuple[Tensor | None, ...]:
        call, needs = ctx.call, ctx.needs_input_grad[2:]
        needed = tuple([need and has for need, has in zip(needs, call.differentiable, strict=True)])
        reached = tuple([k for k, d in enumerate(d_output[: call.result_count]) if d is not None])
        gradients: Iterator[Tensor | None] = iter(())
        if reached and any(needed):
            request = Request(call, needed, reached)
            gradients = iter(LayerGradients.apply(request, *ctx.saved_tensors, *[d_output[k] for k in reached]))
        return None, None, *[next(gradients, None) if need else None for need in needed]

    @staticmethod
    def jvp(ctx: Any, _form: None, _resets: None, *d: Tensor | None) -> tuple[Tensor | None, ...]:
        _, tangents = _with_tangents(ctx.call, *unwrap_dead_wrappers(ctx.saved_tensors), d=d)
        return *tangents, *[None] * (ctx.count - len(tangents))

    @staticmethod
    def vmap(
        info: Any, in_dims: Sequence[Any], call: StaticCall, *tensors: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Any]:
        batch = Batch(info.batch_size, in_dims[1:], tensors)
        is_weight = [False, *call.is_weight]
        if batch.has_own(is_weight):
            return batch.one_by_one(lambda *each: LayerTransform.apply(call, *each))
        results = LayerTransform.apply(call, *batch.folded(is_weight))
        return batch.unfolded(results)


@dataclass(frozen=True)
class Request:
    """The static part of the gradients of a call.

    Attributes:
        call: the static part of the call.
        needed: whether the gradient of the input and of each operand is needed.
        reached: the indices of the results that have a gradient.
        groups: the number of groups of sequences, which is the length of an additional first axis of the gradients of
            parameters. 0 if these gradients are summed over all sequences.
    """

    call: StaticCall
    needed: tuple[bool, ...]
    reached: tuple[int, ...]
    groups: int = 0

    @cached_property
    def of_weight(self) -> list[bool]:
        """For each needed gradient, whether it is that of a parameter."""
        return [is_weight for is_weight, need in zip(self.call.is_weight, self.needed, strict=True) if need]


class LayerGradients(FlatFunction):
    """The needed gradients of a call, from its tensors, the tensors that it saved, and the gradients of its results."""

    @staticmethod
    def forward(request: Request, resets: Tensor | None, data: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        call, groups = request.call, request.groups
        tensors = tuple([v.contiguous() for v in tensors])
        steps, rows = call.flat(resets, data.contiguous(), tensors)
        operands, saved, d_reached = _split(rows, call.operand_count, len(request.reached))
        recordings = [Recording() for _ in call.plans]
        d_results = readable_gradients(steps, _scattered(request.reached, d_reached, call.result_count))
        by_call = [need and not (groups and own) for need, own in zip(request.needed, call.is_weight, strict=True)]
        d = call.compiled.backward(steps, operands, saved, d_results, by_call[0], by_call[1:], recordings)
        if groups:
            d[1:] = _by_group(request, steps, operands, saved, recordings, d[1:])
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
        call, n = request.call, request.call.operand_count + 1
        inputs, saved, d_reached = _split(tensors, n, len(request.reached))
        if request.groups:
            values, pull, *_ = torch.func.vjp(_one_by_one(request, resets, saved), *inputs, *d_reached)
            second = pull(tuple([torch.zeros_like(v) if d is None else d for v, d in zip(values, dd, strict=True)]))
        else:
            d = _scattered([k for k, need in enumerate(request.needed) if need], dd, n)

            def tangents(*inputs: Tensor) -> tuple[Tensor, ...]:
                of_results = _with_tangents(call, resets, *inputs, d=d)[1]
                return tuple([of_results[k] for k in request.reached])

            values, pull, *_ = torch.func.vjp(tangents, *inputs)
            second = *pull(tuple(d_reached)), *values
        d_inputs = [v if has else None for v, has in zip(second, call.differentiable, strict=False)]
        return None, None, *d_inputs, *[None] * len(saved), *second[n:]

    @staticmethod
    def jvp(ctx: Any, _request: None, _resets: None, *d: Tensor | None) -> tuple[Tensor | None, ...]:
        request, (resets, *tensors) = ctx.request, unwrap_dead_wrappers(ctx.saved_tensors)
        call, n = request.call, request.call.operand_count + 1
        inputs, saved, d_reached = _split(tensors, n, len(request.reached))
        d_inputs, _, dd_reached = _split(d, n, len(request.reached))
        dd_reached = [torch.zeros_like(v) if dd is None else dd for v, dd in zip(d_reached, dd_reached, strict=True)]
        if request.groups:
            known = [torch.zeros_like(v) if t is None else t for v, t in zip(inputs, d_inputs, strict=True)]
            primals, moves = (*inputs, *d_reached), (*known, *dd_reached)
            return torch.func.jvp(_one_by_one(request, resets, saved), primals, moves)[1]

        def both(*inputs: Tensor) -> tuple[Tensor, ...]:
            values, tangents = _with_tangents(call, resets, *inputs, d=d_inputs)
            return tuple([values_of[k] for values_of in (values, tangents) for k in request.reached])

        # The product rule: the gradients depend on the gradients of the results and on the inputs.
        _, pull, *_ = torch.func.vjp(both, *inputs)
        return tuple([v for v, need in zip(pull((*dd_reached, *d_reached)), request.needed, strict=True) if need])

    @staticmethod
    def vmap(
        info: Any, in_dims: Sequence[Any], request: Request, *tensors: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Any]:
        batch = Batch(info.batch_size, in_dims[1:], tensors)
        of_call = [False, *request.call.is_weight]
        is_weight = of_call + [False] * (len(tensors) - len(of_call))
        if batch.has_own(is_weight):
            return batch.one_by_one(lambda *each: LayerGradients.apply(request, *each))
        groups = info.batch_size * max(request.groups, 1) if any(request.of_weight) else 0
        gradients = LayerGradients.apply(replace(request, groups=groups), *batch.folded(is_weight))
        return batch.unfolded(gradients, request.of_weight, request.groups)


def _split(tensors: Sequence[Any], first: int, last: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Split a list into its first `first` items, its last `last` items, and those between."""
    end = len(tensors) - last
    return list(tensors[:first]), list(tensors[first:end]), list(tensors[end:])


def _scattered(indices: Sequence[int], values: Sequence[Tensor | None], count: int) -> list[Tensor | None]:
    """A list of `count` items: the values at these indices, None elsewhere."""
    by_index = dict(zip(indices, values, strict=True))
    return [by_index.get(k) for k in range(count)]


def _by_group(
    request: Request,
    steps: Steps,
    operands: Sequence[Tensor],
    states: Sequence[Tensor],
    recordings: Sequence[Recording],
    d: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The gradients of all operands. Those of parameters have a leading axis of groups."""
    gradients, at, remaining = list(d), 0, iter(states)
    plans = request.call.plans
    needed = needed_weights(plans, request.needed[1:])
    for (plan, own), recording, names in zip(by_direction(plans, operands), recordings, needed, strict=True):
        by_name = dict(zip(plan.equations.state, remaining, strict=False))
        each = weight_gradients(plan, steps, plan.direction(own), by_name, recording.grad, request.groups, names)
        for k, name in enumerate(plan.weights):
            gradients[at + k] = each.get(name)
        at += plan.operand_count
    return gradients


def _one_by_one(request: Request, resets: Tensor | None, saved: Sequence[Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """A function that computes the gradients of `request` group by group, from inputs and gradients of results."""
    call, each = request.call, replace(request, groups=0)
    is_weight = [*call.is_weight, *[False] * (len(saved) + len(request.reached))]

    def gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
        inputs, _, d_reached = _split(tensors, call.operand_count + 1, len(request.reached))
        every = [*inputs, *saved, *d_reached]

        def of_group(v: Tensor, group: int) -> Tensor:
            return v.unflatten(v.dim() - 2, (request.groups, -1)).select(v.dim() - 2, group)

        by_group = []
        for group in range(request.groups):
            own = [v if weight else of_group(v, group) for v, weight in zip(every, is_weight, strict=True)]
            mask = None if resets is None else of_group(resets, group)
            by_group.append(LayerGradients.apply(each, mask, *own))
        by_gradient = zip(zip(*by_group, strict=True), request.of_weight, strict=True)
        return tuple([torch.stack(v) if of_weight else torch.cat(v, v[0].dim() - 2) for v, of_weight in by_gradient])

    return gradients


def _with_tangents(
    call: StaticCall, resets: Tensor | None, data: Tensor, *operands: Tensor, d: Sequence[Tensor | None]
) -> tuple[list[Tensor], list[Tensor]]:
    """The results of a call, and their tangents for the tangents `d` of the input and the operands."""
    steps, rows = call.flat(resets, data, operands)
    d_data, *d_operands = [None if v is None else _rows(v) for v in d]
    steps, directions = tangent_call(steps, directions_of(call.plans, rows), d_data, d_operands)
    if any(is_tangent(plan.equations) for plan in call.plans):
        # Kernels of third derivatives would take longer to compile than the loop takes to run.
        by_direction = reference.run(steps, directions, all_states=True)
        results = [
            v
            for result in by_direction
            for v in (*(v.unflatten(0, data.shape[:2]) for v in result.states), *result.final)
        ]
    else:
        inside = _static_call(call.backend, directions, call.save)
        results = [*LayerTransform.apply(inside, *inside.by_step(steps, operands_of(directions)))]
    return values_and_tangents(results, call.plans)
