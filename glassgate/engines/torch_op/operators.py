"""The torch operators `glassgate::layer` and `glassgate::layer_backward`, for torch.compile and torch.export.

`schema.py` registers the functions of this module: the implementations, the fake kernels, which return empty results of
the right shapes, and the gradients. The second derivative is that of `autograd.LayerGradients`.

The argument `plans` describes a layer as text: the name of a backend, then the plan of each direction.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.contract import Steps
from glassgate.engines.memory import COMPUTE_DTYPE
from glassgate.engines.plan import (
    Plan,
    by_direction,
    differentiable_tensors,
    parse_plans,
    state_result_count,
    without_final_states,
)
from glassgate.engines.registry import BACKENDS
from glassgate.engines.torch_op.autograd import GradientRequest, LayerGradients
from glassgate.engines.torch_op.calls import RowLayout, SingleCall


def format_layer(backend: str, plans: Sequence[str]) -> str:
    """Return the text that operators take as `plans`: the name of a backend, then the text of each plan."""
    return "\n".join([backend, *plans])


def parse_layer(text: str) -> tuple[str, tuple[Plan, ...]]:
    """Parse the argument `plans`. A text without the name of a backend is for the first backend in `BACKENDS`."""
    name, _, plans = text.partition("\n")
    if name not in BACKENDS:
        name, plans = next(iter(BACKENDS)), text
    return name, parse_plans(plans, BACKENDS[name].costs)


def layer_plans(text: str) -> tuple[Plan, ...]:
    """The plans in the argument `plans`."""
    return parse_layer(text)[1]


def forward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    operands: Sequence[Tensor],
    plans: str,
    all_states: bool,
    save: bool,
    dtype: torch.dtype,
) -> list[Tensor]:
    """`CompiledLayer.forward` with the arguments of the schema."""
    compiled = SingleCall(*parse_layer(plans)).compiled
    return compiled.forward(Steps(data, batch_sizes, resets), operands, all_states, save, dtype)


def backward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    operands: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor],
    reached: Sequence[int],
    plans: str,
    needs_d_data: bool,
) -> list[Tensor]:
    """`CompiledLayer.backward` with the arguments of the schema. A missing gradient is an empty tensor.

    Item k of `d_results` is the gradient of the result with index `reached[k]`.
    """
    call, tensors = SingleCall(*parse_layer(plans)), (data, *operands)
    d_all: list[Tensor | None] = [None] * call.result_count
    for k, d in zip(reached, d_results, strict=True):
        d_all[k] = d
    needed = needs_d_data, *differentiable_tensors(call.plans)[1:]
    gradients = call.backward(tensors, flat, resets, d_all, needed, RowLayout.of(batch_sizes))
    return [v.new_empty(0) if d is None else d for v, d in zip(tensors, gradients, strict=True)]


def fake_forward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    operands: Sequence[Tensor],
    plans: str,
    all_states: bool,
    save: bool,
    dtype: torch.dtype,
) -> list[Tensor]:
    S, results, saved = data.shape[0], [], []
    compute_dtype, (name, parsed) = COMPUTE_DTYPE[data.dtype], parse_layer(plans)
    for plan, own in by_direction(parsed, operands):
        sizes = plan.sizes(own, data)
        widths = list(plan.state_widths(sizes).values())
        results.append(data.new_empty(S, widths[0], dtype=dtype))
        if all_states or save:
            results += [data.new_empty(S, n, dtype=dtype if all_states else compute_dtype) for n in widths[1:]]
        results += [data.new_empty(sizes.N, n, dtype=dtype) for n in widths]
        if save:
            kept = plan.kept_widths(sizes).items()
            saved += [data.new_empty(S, n, dtype=BACKENDS[name].saved_type(buffer, dtype)) for buffer, n in kept]
    return [*results, *saved]


def fake_backward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    operands: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor],
    reached: Sequence[int],
    plans: str,
    needs_d_data: bool,
) -> list[Tensor]:
    d = [data.new_empty(data.shape if needs_d_data else (0,))]
    for plan, own in by_direction(layer_plans(plans), operands):
        d += [v.new_empty(v.shape if has_grad else (0,)) for v, has_grad in zip(own, plan.differentiable, strict=True)]
    return d


def save_layer(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    """Save the tensors of the operator `layer` that `layer_gradient` reads."""
    data, batch_sizes, resets, operands, ctx.text, _, _, _ = inputs
    plans = parse_layer(ctx.text)[1]
    ctx.operand_count, ctx.result_count = len(operands), state_result_count(plans)
    ctx.differentiable = differentiable_tensors(plans)[1:]
    ctx.save_for_backward(data, batch_sizes, resets, *operands, *without_final_states(plans, output))
    ctx.set_materialize_grads(False)


def layer_gradient(ctx: Any, d_flat: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """The gradient of the operator `layer`."""
    data, batch_sizes, resets, *rest = ctx.saved_tensors
    # For `detach`, see `autograd.py`.
    operands, saved = rest[: ctx.operand_count], [v.detach() for v in rest[ctx.operand_count :]]
    reached = [k for k, d in enumerate(d_flat[: ctx.result_count]) if d is not None]
    d_reached, needs_d_data = [d_flat[k] for k in reached], ctx.needs_input_grad[0]
    d_data, *d_operands = torch.ops.glassgate.layer_backward(
        data, batch_sizes, resets, operands, saved, d_reached, reached, ctx.text, needs_d_data
    )
    # An operator cannot return None. A missing gradient is an empty tensor.
    triples = zip(d_operands, ctx.differentiable, operands, strict=True)
    d_existing = [d if exists and d.shape == v.shape else None for d, exists, v in triples]
    return d_data if needs_d_data else None, None, None, d_existing, None, None, None, None


def save_layer_backward(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    """Save the tensors of the operator `layer_backward` that `layer_backward_gradient` reads."""
    data, batch_sizes, resets, operands, saved, d_reached, reached, text, _ = inputs
    name, plans = parse_layer(text)
    tensors = data, *operands
    triples = zip(output, tensors, differentiable_tensors(plans), strict=True)
    needed = tuple([exists and d.shape == v.shape for d, v, exists in triples])
    request = GradientRequest(SingleCall(name, plans), needed, tuple(reached), state_result_count(plans))
    rest = RowLayout.of(batch_sizes), resets, *tensors, *saved, *d_reached
    LayerGradients.setup_context(ctx, (request, *rest), ())


def layer_backward_gradient(ctx: Any, dd: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """The gradient of the operator `layer_backward`."""
    request = ctx.request
    dd_needed = [v for v, need in zip(dd, request.needed, strict=True) if need]
    (d_data, *d_operands), d_saved, d_d_reached = request.split(LayerGradients.backward(ctx, *dd_needed)[3:])
    return d_data, None, None, d_operands, d_saved, d_d_reached, None, None, None
