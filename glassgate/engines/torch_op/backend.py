"""The kernels that compute a layer's pass, loaded when first asked for: for autograd, and behind the operators."""

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.contract import Direction, Recording, Steps
from glassgate.engines.memory import COMPUTED_IN, readable
from glassgate.engines.numba_cpu.costs import COSTS
from glassgate.engines.plan import Plan, plan_of, plans_in


def planned(direction: Direction, record: bool = False) -> Plan:
    """The plan of a direction, for these kernels; `record`: whether gates and their gradients are results too."""
    return plan_of(direction, COSTS, record)


def plans_from(text: str) -> tuple[Plan, ...]:
    """The plans that a text holds, for these kernels."""
    return plans_in(text, COSTS)


@cache
def _kernels() -> ModuleType:
    """Loaded when first asked for."""
    from glassgate.engines.numba_cpu import run

    return run


def forward(*args: Any) -> list[Tensor]:
    """`run.forward` of the kernels."""
    found: list[Tensor] = _kernels().forward(*args)
    return found


def backward(
    steps: Steps,
    plans: Sequence[Plan],
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor | None],
    data_too: bool,
    needed: Sequence[bool] | None = None,
    recordings: Sequence[Recording] | None = None,
) -> list[Tensor | None]:
    """`run.backward` of the kernels, with the gradients of the results, None where there is none."""
    dtype = COMPUTED_IN[steps.data.dtype]
    d = {place: readable(v, dtype) for place, v in enumerate(d_results) if v is not None}
    found: list[Tensor | None] = _kernels().backward(steps, plans, given, flat, d, data_too, needed, recordings)
    return found


def forward_of_operator(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    plans: str,
    all_states: bool,
    save: bool,
    dtype: torch.dtype,
) -> list[Tensor]:
    """`forward` in the form of the schema: plans are text."""
    return forward(Steps(data, batch_sizes, resets), plans_from(plans), given, all_states, save, dtype)


def backward_of_operator(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor],
    reached: Sequence[int],
    plans: str,
    data_too: bool,
) -> list[Tensor]:
    """`backward` in the form of the schema: results have numbers, and a gradient that is none is empty."""
    d_all: list[Tensor | None] = [None] * (max(reached, default=-1) + 1)
    for place, d in zip(reached, d_results, strict=True):
        d_all[place] = d
    found = backward(Steps(data, batch_sizes, resets), plans_from(plans), given, flat, d_all, data_too)
    return [v.new_empty(0) if d is None else d for v, d in zip((data, *given), found, strict=True)]
