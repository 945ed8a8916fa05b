"""The implementation of the operators. Their argument `plans` contains the name of a backend and the plans as text."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.engines.backend import Backend, Compiled
from glassgate.engines.contract import Steps
from glassgate.engines.memory import COMPUTED_IN, readable
from glassgate.engines.plan import Plan, plans_in
from glassgate.engines.registry import BACKENDS


def text_of(backend: str, plans: Sequence[str]) -> str:
    """The argument `plans` of the operators, from the name of a backend and the text of each plan."""
    return "\n".join([backend, *plans])


def parse(text: str) -> tuple[Backend, tuple[Plan, ...]]:
    """The backend and the plans in a text. Programs that were saved without a name run on the first backend."""
    name, _, plans = text.partition("\n")
    if name not in BACKENDS:
        name, plans = next(iter(BACKENDS)), text
    return BACKENDS[name], plans_in(plans, BACKENDS[name].costs)


def plans_from(text: str) -> tuple[Plan, ...]:
    """The plans in a text."""
    return parse(text)[1]


def compiled_from(text: str) -> Compiled:
    """The compiled layer of the plans in a text."""
    backend, plans = parse(text)
    return backend.compile(plans)


def readable_gradients(steps: Steps, d_results: Sequence[Tensor | None]) -> dict[int, Tensor]:
    """The gradients of results that are not None, by index, in the dtype and layout that kernels read."""
    dtype = COMPUTED_IN[steps.data.dtype]
    return {place: readable(v, dtype) for place, v in enumerate(d_results) if v is not None}


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
    """`Compiled.forward` with the arguments of the schema."""
    return compiled_from(plans).forward(Steps(data, batch_sizes, resets), operands, all_states, save, dtype)


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
    """`Compiled.backward` with the arguments of the schema. A gradient that does not exist is an empty tensor.

    Item k of `d_results` is the gradient of the result with index `reached[k]`.
    """
    steps = Steps(data, batch_sizes, resets)
    d_all: list[Tensor | None] = [None] * (max(reached, default=-1) + 1)
    for place, d in zip(reached, d_results, strict=True):
        d_all[place] = d
    gradients = compiled_from(plans).backward(steps, operands, flat, readable_gradients(steps, d_all), needs_d_data)
    return [v.new_empty(0) if d is None else d for v, d in zip((data, *operands), gradients, strict=True)]
