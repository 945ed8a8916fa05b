"""Helpers for recurrent states, which layers take and return as a tensor or a tuple, and masks of padded steps."""

import torch
from torch import Tensor

from glassgate.tasks.data.batches import move

States = tuple[Tensor, ...]


def as_tuple(state: Tensor | States) -> States:
    """Return the states of a layer as a tuple, even if its cell has only one state."""
    return state if isinstance(state, tuple) else (state,)


def as_hx(states: States) -> Tensor | States:
    """Return states in the form that a layer takes: a tensor if its cell has only one state."""
    return states if len(states) > 1 else states[0]


def select_rows(state: Tensor | States | None, rows: Tensor) -> Tensor | States | None:
    """Select rows of the states, `(layers, N, H)`. None, the default initial state, stays None."""
    return None if state is None else as_hx(tuple(each.index_select(1, rows) for each in as_tuple(state)))


def repeat_rows(state: Tensor | States | None, count: int) -> Tensor | States | None:
    """Repeat each row of the states, `(layers, N, H)`, `count` times."""
    return None if state is None else as_hx(tuple(each.repeat_interleave(count, 1) for each in as_tuple(state)))


def step_mask(lengths: Tensor, steps: Tensor) -> Tensor:
    """Return the mask `(N, L)` of the steps `(N, L, ...)` that are not padding, from the lengths `(N,)`.

    Example:
        >>> step_mask(torch.tensor([2, 1]), torch.zeros(2, 2, 5)).tolist()
        [[True, True], [True, False]]
    """
    return torch.arange(steps.shape[1], device=steps.device) < move(lengths, steps.device)[:, None]
