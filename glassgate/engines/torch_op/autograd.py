"""What the operators are to autograd: what a pass forward remembers, the pass back, and the gradient of that."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassgate.engines import reference
from glassgate.engines.contract import Recording, Steps
from glassgate.engines.plan import count_of_results, plans, split, without_final
from glassgate.engines.torch_op import backend


class Layer(torch.autograd.Function):
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
        flat = backend.forward(steps, form, given, True, True, recordings)
        ctx.recordings = recordings
        remember(ctx, (*steps, given, form), flat)
        return tuple(flat[: ctx.results])

    @staticmethod
    def backward(ctx: Any, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            d_data, d_given = _differentiate(ctx, d_results, ctx.needs_input_grad[3], _by_operator)
        else:
            backward = partial(backend.backward, needed=ctx.needs_input_grad[4:], recordings=ctx.recordings)
            d_data, d_given = _differentiate(ctx, d_results, ctx.needs_input_grad[3], backward)
        return None, None, None, d_data, *d_given


def remember(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
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
    d: list[Tensor] = torch.ops.glassgate.layer_backward(*args)
    return d


def backward_of_operator(ctx: Any, d_flat: Sequence[Tensor | None]) -> tuple[Any, ...]:
    d_data, d_given = _differentiate(ctx, d_flat[: ctx.results], ctx.needs_input_grad[0], _by_operator)
    return d_data, None, None, d_given, None, None, None


def remember_backward(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    data, batch_sizes, resets, given, flat, d_results, ctx.reached, ctx.form, _ = inputs
    ctx.given, ctx.flat = len(given), len(flat)
    ctx.save_for_backward(batch_sizes, resets, data, *given, *d_results)
    ctx.set_materialize_grads(False)


def backward_twice(ctx: Any, dd: Sequence[Tensor | None]) -> tuple[Any, ...]:
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
