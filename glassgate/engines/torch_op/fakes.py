"""The fake kernels of the operators. They return empty results, whose shapes torch.compile and torch.export read."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.engines.memory import COMPUTE_DTYPE
from glassgate.engines.plan import by_direction
from glassgate.engines.registry import BACKENDS
from glassgate.engines.torch_op.operators import layer_plans, parse_layer


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
    d = [data.new_empty(data.shape if needs_d_data else (0,))]
    for plan, own in by_direction(layer_plans(plans), operands):
        d += [v.new_empty(v.shape if has_grad else (0,)) for v, has_grad in zip(own, plan.differentiable, strict=True)]
    return d
