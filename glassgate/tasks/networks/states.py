"""Recurrent states, which layers take and return as a tensor or a tuple of tensors; and masks of padded steps."""

import torch
from torch import Tensor

from glassgate.tasks.data.batches import moved

States = tuple[Tensor, ...]


def as_tuple(state: Tensor | States) -> States:
    """Return the states of a layer as a tuple, also if its cell has only one."""
    return state if isinstance(state, tuple) else (state,)


def as_hx(states: States) -> Tensor | States:
    """Return states in the form that a layer takes: a tensor if its cell has only one state."""
    return states if len(states) > 1 else states[0]


def step_mask(lengths: Tensor, steps: Tensor) -> Tensor:
    """Return the mask `(N, L)` of the steps `(N, L, ...)` that are not padding, from the lengths `(N,)`.

    Example:
        >>> step_mask(torch.tensor([2, 1]), torch.zeros(2, 2, 5)).tolist()
        [[True, True], [True, False]]
    """
    return torch.arange(steps.shape[1], device=steps.device) < moved(lengths, steps.device)[:, None]
