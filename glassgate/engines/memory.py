"""Rows and memory of a call: what is a step and what is padding, and memory that is used again."""

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from glassgate.engines.call import Direction
from glassgate.engines.plan import Plan, given_of


def rows_of(data: Tensor, batch_sizes: Tensor | None) -> int:
    """How many of the rows are steps, and not padding."""
    return data.shape[0] if batch_sizes is None else int(batch_sizes.sum())


def first_rows(tensor: Tensor, rows: int) -> Tensor:
    """Its first rows."""
    return tensor if rows == tensor.shape[0] else tensor[:rows]


def computable(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The tensors as kernels take them."""
    return [(v if v.dtype == dtype else v.to(dtype)).contiguous() for v in tensors]


def computable_direction(plan: Plan, direction: Direction, dtype: torch.dtype) -> Direction:
    """The direction with its tensors as kernels take them; itself where they are so."""
    given = given_of([direction])
    if all([v.dtype == dtype and v.is_contiguous() for v in given]):
        return direction
    return plan.direction(computable(given, dtype))


def unwritten(S: int, width: int, rows: int, like: Tensor) -> Tensor:
    """Unwritten where steps are, zero where padding is."""
    memory = like.new_empty(S, width)
    if rows < S:
        memory[rows:].zero_()
    return memory


class _Workspace(threading.local):
    """Each thread's own."""

    def __init__(self) -> None:
        self.memory: dict[tuple[int, torch.dtype, bool], Tensor] = {}


_workspace = _Workspace()
MOST_KEPT = 2**26
"""Bytes of working memory that a thread keeps from one call to the next: fresh memory costs a good part of a call."""


def used_again(number: int, S: int, width: int, like: Tensor) -> Tensor:
    """Working memory of a call, its `number`-th, that the thread's next call without gradients overwrites."""
    key = number, like.dtype, torch.is_inference_mode_enabled()
    memory = _workspace.memory.get(key)
    if memory is None or memory.numel() < S * width:
        memory = like.new_empty(S * width)
        if memory.numel() * memory.element_size() <= MOST_KEPT:
            _workspace.memory[key] = memory
    return memory.as_strided((S, width), (width, 1))
