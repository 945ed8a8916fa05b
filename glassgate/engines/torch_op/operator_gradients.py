"""The gradients of the torch operators `glassgate::layer` and `glassgate::layer_backward`; `schema.py` registers them.

torch.compile and torch.export use the operators. The second derivative is that of `autograd.LayerGradients`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.plan import differentiable_tensors, state_result_count, without_final_states
from glassgate.engines.torch_op.autograd import GradientRequest, LayerGradients
from glassgate.engines.torch_op.calls import RowLayout, SingleCall
from glassgate.engines.torch_op.operators import parse_layer


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
