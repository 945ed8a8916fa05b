"""The implementation of the torch operators `glassgate::layer` and `glassgate::layer_backward`.

Their argument `plans` describes a layer as text: the name of a backend, then the plan of each direction.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.engines.backend import CompiledLayer
from glassgate.engines.contract import Steps
from glassgate.engines.memory import COMPUTE_DTYPE, in_memory, to_contiguous_rows
from glassgate.engines.plan import Plan, parse_plans
from glassgate.engines.registry import BACKENDS


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


def compile_layer(text: str) -> CompiledLayer:
    """Compile the layer that the argument `plans` describes."""
    name, plans = parse_layer(text)
    return BACKENDS[name].compile(plans)


def to_kernel_gradients(steps: Steps, d_results: Sequence[Tensor | None]) -> dict[int, Tensor]:
    """Return the gradients that are not None, by the index of the result, in the dtype and layout that kernels read."""
    dtype = COMPUTE_DTYPE[steps.data.dtype]
    present = {k: v for k, v in enumerate(d_results) if v is not None}
    return {k: to_contiguous_rows(v, dtype) for k, v in zip(present, in_memory([*present.values()]), strict=True)}


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
    return compile_layer(plans).forward(Steps(data, batch_sizes, resets), operands, all_states, save, dtype)


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
    steps = Steps(data, batch_sizes, resets)
    d_all: list[Tensor | None] = [None] * (max(reached, default=-1) + 1)
    for k, d in zip(reached, d_results, strict=True):
        d_all[k] = d
    gradients = compile_layer(plans).backward(steps, operands, flat, to_kernel_gradients(steps, d_all), needs_d_data)
    return [v.new_empty(0) if d is None else d for v, d in zip((data, *operands), gradients, strict=True)]
