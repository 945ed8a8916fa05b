"""The CPU engine: a layer's kernels as operators that autograd, torch.compile and torch.export know.

One operator runs all directions of a layer forward, another one back.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassgate.engines import operators, reference
from glassgate.engines.call import Direction, Recording, Result, Steps, is_transformed
from glassgate.engines.handle import untraceable
from glassgate.engines.memory import COMPUTED_IN, readable
from glassgate.engines.plan import by_direction, count_of_results, form_of, given_of, plans, split, without_final


def why_not(steps: Steps, directions: list[Direction], all_states: bool = False) -> str | None:
    """What kernels lack for this call, or None."""
    if steps.data.device.type != "cpu":
        return f"kernels run on the CPU, and the input is on {steps.data.device}"
    if steps.data.dtype not in COMPUTED_IN:
        return f"kernels compute in floating point, and the input is {steps.data.dtype}"
    if is_transformed():
        return "kernels have no rule for vmap, jvp and other transforms of torch.func"
    for direction in directions:
        reason = untraceable(direction.cell, "weight_hr" in direction.weights)
        if reason is not None:
            return reason
    return None


def run(
    steps: Steps,
    directions: list[Direction],
    all_states: bool = False,
    recordings: Sequence[Recording] | None = None,
) -> list[Result]:
    """One layer, all of its directions in one call."""
    form, given = form_of(directions, recordings is not None), given_of(directions)
    data, sizes, resets = steps
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        data, *given = [v.to(dtype) if v.dtype == torch.float32 else v for v in (data, *given)]
        steps = Steps(data, sizes, resets)
    save = torch.is_grad_enabled() and (data.requires_grad or any(v.requires_grad for v in given))
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        flat = operators.layer(data, sizes, resets, given, form, all_states, save)
    elif save:
        flat = _Layer.apply(steps, form, recordings, data, *given)
    else:
        flat = _forward(steps, form, given, all_states, False, recordings)
    results, at = [], 0
    for direction in directions:
        count = len(direction.initial)
        every = count if all_states or save else 1
        states, final = flat[at : at + every], flat[at + every : at + every + count]
        results.append(Result(tuple(states if all_states else states[:1]), tuple(final)))
        at += every + count
    return results


class Stepper:
    """One direction, one step at a time, on the kernel: memory and packed weights are made once.

    Args:
        direction: the call; its initial states are the states before the first step.
    """

    def __init__(self, direction: Direction) -> None:
        from glassgate.engines.numba_cpu.step import Step

        given = [v.detach().clone().contiguous() for v in given_of([direction])]
        ((plan, own),) = by_direction(form_of([direction]), given)
        n = len(plan.weights)
        x = given[0].new_empty(len(own[n]), own[plan.weights.index("weight_ih")].shape[1])
        self._step = Step(plan, plan.sizes(own, x), own[:n], own[n:])

    @property
    def states(self) -> Sequence[Tensor]:
        """The states after the last step, (N, W) each; writing to them changes the next step."""
        return self._step.states

    def __call__(self, x: Tensor) -> Tensor:
        """One step from x (N, H_in) to the output (N, W), whose memory is used again."""
        return self._step.run(x.contiguous())


def _forward_of_operator(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    form: str,
    all_states: bool,
    save: bool,
) -> list[Tensor]:
    return _forward(Steps(data, batch_sizes, resets), form, given, all_states, save)


def _forward(*args: Any) -> list[Tensor]:
    from glassgate.engines.numba_cpu import layer

    return layer.forward(*args)


def _fake_forward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    form: str,
    all_states: bool,
    save: bool,
) -> list[Tensor]:
    S, results, behind = data.shape[0], [], []
    for plan, own in by_direction(form, given):
        sizes = plan.sizes(own, data)
        widths = list(plan.of_states(sizes).values())
        results += [data.new_empty(S, n) for n in (widths if all_states or save else widths[:1])]
        results += [data.new_empty(sizes.N, n) for n in widths]
        if save:
            behind += [data.new_empty(S, n, dtype=COMPUTED_IN[data.dtype]) for n in plan.kept(sizes).values()]
    return [*results, *behind]


def _backward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor],
    reached: Sequence[int],
    form: str,
    data_too: bool,
    needed: Sequence[bool] | None = None,
    recordings: Sequence[Recording] | None = None,
) -> list[Tensor]:
    """`layer.backward`, with the gradients of the results numbered `reached`."""
    from glassgate.engines.numba_cpu import layer

    d = {place: readable(v, COMPUTED_IN[data.dtype]) for place, v in zip(reached, d_results, strict=True)}
    return layer.backward(Steps(data, batch_sizes, resets), form, given, flat, d, data_too, needed, recordings)


def _fake_backward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor],
    reached: Sequence[int],
    form: str,
    data_too: bool,
) -> list[Tensor]:
    d = [data.new_empty(data.shape if data_too else (0,))]
    for plan, direction in zip(plans(form), split(form, given), strict=True):
        d += [data.new_empty(v.shape) for v in (*direction.weights.values(), *direction.initial, *direction.restart)]
        d += [data.new_empty(0) for _ in plan.noise]
    return d


class _Layer(torch.autograd.Function):
    """What the operator is to autograd, without the operator's own way through torch's dispatcher."""

    @staticmethod
    def forward(
        ctx: Any,
        steps: Steps,
        form: str,
        recordings: Sequence[Recording] | None,
        data: Tensor,
        *given: Tensor,
    ) -> tuple[Tensor, ...]:
        flat = _forward(steps, form, given, True, True, recordings)
        ctx.recordings = recordings
        _remember(ctx, (*steps, given, form), flat)
        return tuple(flat[: ctx.results])

    @staticmethod
    def backward(ctx: Any, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            d_data, d_given = _differentiate(ctx, d_results, ctx.needs_input_grad[3], _by_operator)
        else:
            backward = partial(_backward, needed=ctx.needs_input_grad[4:], recordings=ctx.recordings)
            d_data, d_given = _differentiate(ctx, d_results, ctx.needs_input_grad[3], backward)
        return None, None, None, d_data, *d_given


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    data, batch_sizes, resets, given, form = inputs[:5]
    ctx.form, ctx.given = form, len(given)
    ctx.results = count_of_results(form)
    ctx.save_for_backward(data, batch_sizes, resets, *given, *without_final(form, output))
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, d_results: Sequence[Tensor | None], data_too: bool, backward: Callable[..., list[Tensor]]
) -> tuple[Tensor | None, list[Tensor | None]]:
    data, batch_sizes, resets, *rest = ctx.saved_tensors
    given, flat = rest[: ctx.given], rest[ctx.given :]
    reached = [k for k, d in enumerate(d_results) if d is not None]
    d_reached = [d for d in d_results if d is not None]
    d_data, *d_given = backward(data, batch_sizes, resets, given, flat, d_reached, reached, ctx.form, data_too)
    known = [is_known for plan in plans(ctx.form) for is_known in plan.differentiable]
    d_wanted = [d if k and d.shape == v.shape else None for d, k, v in zip(d_given, known, given, strict=True)]
    return d_data if data_too else None, d_wanted


def _by_operator(*args: Any) -> list[Tensor]:
    """The gradients in a form that has gradients itself."""
    d: list[Tensor] = operators.layer_backward(*args)
    return d


def _backward_of_operator(ctx: Any, d_flat: Sequence[Tensor | None]) -> tuple[Any, ...]:
    d_data, d_given = _differentiate(ctx, d_flat[: ctx.results], ctx.needs_input_grad[0], _by_operator)
    return d_data, None, None, d_given, None, None, None


def _remember_backward(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    data, batch_sizes, resets, given, flat, d_results, ctx.reached, ctx.form, _ = inputs
    ctx.given, ctx.flat = len(given), len(flat)
    ctx.save_for_backward(batch_sizes, resets, data, *given, *d_results)
    ctx.set_materialize_grads(False)


def _backward_twice(ctx: Any, dd: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """The gradient of the gradients, by the reference."""
    batch_sizes, resets, *leaves = ctx.saved_tensors
    with torch.enable_grad():
        leaves = [v.view_as(v) if v.requires_grad else v.detach().requires_grad_() for v in leaves]
        data, *given = inputs = leaves[: ctx.given + 1]
        results = reference.run(Steps(data, batch_sizes, resets), split(ctx.form, given), all_states=True)
        values = [v for result in results for v in (*result.states, *result.final)]
        d = _gradient([values[k] for k in ctx.reached], inputs, leaves[len(inputs) :])
        used = [k for k, v in enumerate(dd) if v is not None and d[k].requires_grad and v.shape == d[k].shape]
        second = _gradient([d[k] for k in used], leaves, [dd[k] for k in used])
    d_data, *d_rest = second
    return d_data, None, None, d_rest[: ctx.given], [None] * ctx.flat, d_rest[ctx.given :], None, None, None


def _gradient(values: Sequence[Tensor], leaves: Sequence[Tensor], d: Sequence[Tensor | None]) -> list[Tensor]:
    return list(torch.autograd.grad(values, leaves, d, create_graph=True, materialize_grads=True))
