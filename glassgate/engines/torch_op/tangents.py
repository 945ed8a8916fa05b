"""The tangent of a call: a call of the tangent cell, which also computes directional derivatives of the states."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

import torch
from torch import Tensor

from glassgate.cell import Cell, Weights
from glassgate.engines.contract import Direction, Steps
from glassgate.engines.meaning import interned, meant
from glassgate.engines.plan import Plan
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.tangent import tangent_of


def tangent_call(
    steps: Steps, directions: Sequence[Direction], d_data: Tensor | None, d_given: Sequence[Tensor | None]
) -> tuple[Steps, list[Direction]]:
    """A call whose states are those of another call, followed by their tangents.

    Args:
        steps, directions: the other call, without projections.
        d_data: the tangent of its input; None for zero.
        d_given: those of the tensors of `given_of(directions)`, noise excepted; None for zero.
    """
    data = torch.cat([steps.data, _or_zeros(d_data, steps.data)], 1)
    found, rest = [], list(d_given)
    for direction in directions:
        d_weights = dict(zip(direction.weights, rest, strict=False))
        rest = rest[len(d_weights) :]
        d_initial, rest = rest[: len(direction.initial)], rest[len(direction.initial) :]
        d_restart, rest = rest[: len(direction.restart)], rest[len(direction.restart) + len(direction.noise) :]
        of_weights = any(d is not None for d in d_weights.values())
        cell, ending = _tangent_cell(meant(direction.cell), of_weights)
        d_known = {name: _or_zeros(d, direction.weights[name]) for name, d in d_weights.items()} if of_weights else None
        found.append(
            direction._replace(
                cell=cell,
                weights=_weights(cell, direction.cell, direction.weights, d_known, ending),
                initial=_with_tangents(direction.initial, d_initial),
                restart=_with_tangents(direction.restart, d_restart),
            )
        )
    return steps._replace(data=data), found


def values_and_tangents(found: Sequence[Tensor], plans: Sequence[Plan]) -> tuple[list[Tensor], list[Tensor]]:
    """The results of a call and their tangents, from the results of the tangent call.

    Args:
        found: for each direction the states at every step, then the final states.
        plans: those of the call.
    """
    values, tangents, rest = list[Tensor](), list[Tensor](), iter(found)
    for plan in plans:
        for _ in range(2):
            values += islice(rest, len(plan.equations.state))
            tangents += islice(rest, len(plan.equations.state))
    return values, tangents


@lru_cache(256)
def _tangent_cell(cell: Equations, of_weights: bool) -> tuple[GraphCell, str]:
    equations, ending = tangent_of(cell, of_weights)
    return GraphCell(interned(equations)), ending


def _or_zeros(d: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if d is None else d


def _with_tangents(states: tuple[Tensor, ...], d_states: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    return (*states, *(_or_zeros(d, v) for v, d in zip(states, d_states, strict=True)))


def _weights(tangent: Cell, cell: Cell, weights: Weights, d: Weights | None, ending: str) -> Weights:
    """The parameters of a tangent cell; see `Tangent`."""
    zeros = {name: torch.zeros_like(v) for name, v in weights.items()}
    moved = d or zeros
    found = {}
    for name, v in weights.items():
        if name == "weight_ih":
            rows = [torch.cat([v, zeros[name]], 1), torch.cat([moved[name], v], 1), zeros[name].repeat(1, 2)]
        elif name == "weight_hh":
            rows = [v, v, moved[name]]
        elif name == "bias_hh":
            rows = [v, zeros[name], moved[name]]
        elif name == "bias_ih" or cell.parameters[name].per_gate:
            rows = [v, moved[name], zeros[name]]
        else:
            found[name] = v
            if d is not None:
                found[name + ending] = d[name]
            continue
        found[name] = torch.cat(rows if d is not None else rows[:2])
    plain = {"weight_ih": 0, "weight_hh": 1, "bias_ih": 2, "bias_hh": 3}
    order = {name: 4 + k for k, name in enumerate(tangent.parameters)} | plain
    return {name: found[name] for name in sorted(found, key=order.__getitem__)}
