"""Forward-mode derivatives of a call, computed by a call of the tangent cell.

A tangent cell computes the states of the original cell and their tangents, which are directional derivatives.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress, islice

import torch
from torch import Tensor

from glassgate.cell import Cell, Weights
from glassgate.engines.contract import Direction, Steps
from glassgate.engines.plan import Plan
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.tangent import tangent_of
from glassgate.engines.traced_cells import current_equations, intern_equations


def tangent_arguments(
    steps: Steps, directions: Sequence[Direction], d_data: Tensor | None, d_operands: Sequence[Tensor | None]
) -> tuple[Steps, list[Direction]]:
    """Return the arguments of the tangent call, which computes the results of the original call and their tangents.

    The states of a tangent cell are those of the original cell, followed by their tangents.

    Args:
        steps, directions: the arguments of the original call, without projections.
        d_data: the tangent of the input; None for zero.
        d_operands: the tangents of `operands_of(directions)`; None for zero. Tangents of noise are ignored.
    """
    data = steps.data if d_data is None else torch.cat([steps.data, d_data], 1)
    tangent_directions, remaining = [], list(d_operands)
    for direction in directions:
        d_weights = dict(zip(direction.weights, remaining, strict=False))
        remaining = remaining[len(d_weights) :]
        d_initial, remaining = remaining[: len(direction.initial)], remaining[len(direction.initial) :]
        d_restart = remaining[: len(direction.restart)]
        remaining = remaining[len(direction.restart) + len(direction.noise) :]
        weights_have_tangents = any(d is not None for d in d_weights.values())
        cell, suffix = _tangent_cell(current_equations(direction.cell), weights_have_tangents)
        d_or_none = (
            {name: _or_zeros(d, direction.weights[name]) for name, d in d_weights.items()}
            if weights_have_tangents
            else None
        )
        tangent_directions.append(
            direction._replace(
                cell=cell,
                weights=_tangent_weights(
                    cell, direction.cell, direction.weights, d_or_none, suffix, d_data is not None
                ),
                initial=_with_tangents(direction.initial, d_initial),
                restart=_with_tangents(direction.restart, d_restart),
            )
        )
    return steps._replace(data=data), tangent_directions


def values_and_tangents(results: Sequence[Tensor], plans: Sequence[Plan]) -> tuple[list[Tensor], list[Tensor]]:
    """Separate the results of a tangent call into the results of the original call and their tangents.

    Args:
        results: for each direction of the tangent call, the states at every step, then the final states.
        plans: the plans of the original call.
    """
    values, tangents, remaining = list[Tensor](), list[Tensor](), iter(results)
    for plan in plans:
        for _ in range(2):
            values += islice(remaining, len(plan.equations.state))
            tangents += islice(remaining, len(plan.equations.state))
    return values, tangents


def tangents_in_torch(
    function: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor], d: Sequence[Tensor | None]
) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Return the values of a differentiable function and their tangents.

    Args:
        function: a function of `tensors`.
        tensors, d: the arguments of the function and their tangents; None for zero.
    """
    is_moved = [v is not None for v in d]
    moved = tuple(compress(tensors, is_moved))

    def values_of(*moved: Tensor) -> tuple[Tensor, ...]:
        remaining = iter(moved)
        own = [next(remaining) if has_tangent else v for v, has_tangent in zip(tensors, is_moved, strict=True)]
        return tuple(function(*own))

    if not moved:
        values = values_of()
        return values, [torch.zeros_like(v) for v in values]
    values, pullback, *_ = torch.func.vjp(values_of, *moved)
    # The gradients of a call are linear in the gradients of its results, so their derivative has the tangents.
    zeros = [torch.zeros_like(v) for v in values]
    _, transposed, *_ = torch.func.vjp(lambda *d_values: pullback(d_values), *zeros)
    return values, transposed(tuple(compress(d, is_moved)))


@lru_cache(256)
def _tangent_cell(cell: Equations, weights_have_tangents: bool) -> tuple[GraphCell, str]:
    equations, suffix = tangent_of(cell, weights_have_tangents)
    return GraphCell(intern_equations(equations)), suffix


def _or_zeros(d: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if d is None else d


def _with_tangents(states: tuple[Tensor, ...], d_states: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    return (*states, *(_or_zeros(d, v) for v, d in zip(states, d_states, strict=True)))


def _tangent_weights(
    tangent: Cell, cell: Cell, weights: Weights, d: Weights | None, suffix: str, input_has_tangent: bool
) -> Weights:
    """The parameters of a tangent cell, from the original parameters and their tangents `d`; see `TangentCell`.

    With `input_has_tangent`, the tangent cell reads the input followed by its tangent.
    """
    zeros = {name: torch.zeros_like(v) for name, v in weights.items()}
    d_or_zeros = d or zeros
    parameters = {}
    for name, v in weights.items():
        if name == "weight_ih" and input_has_tangent:
            rows = [torch.cat([v, zeros[name]], 1), torch.cat([d_or_zeros[name], v], 1), zeros[name].repeat(1, 2)]
        elif name == "weight_hh":
            rows = [v, v, d_or_zeros[name]]
        elif name == "bias_hh":
            rows = [v, zeros[name], d_or_zeros[name]]
        elif name in ("weight_ih", "bias_ih") or cell.parameters[name].per_gate:
            rows = [v, d_or_zeros[name], zeros[name]]
        else:
            parameters[name] = v
            if d is not None:
                parameters[name + suffix] = d[name]
            continue
        parameters[name] = torch.cat(rows if d is not None else rows[:2])
    positions = {name: 4 + k for k, name in enumerate(tangent.parameters)}
    positions |= {"weight_ih": 0, "weight_hh": 1, "bias_ih": 2, "bias_hh": 3}
    return {name: parameters[name] for name in sorted(parameters, key=positions.__getitem__)}
