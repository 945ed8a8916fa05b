"""Rows and memory of a call: what is a step and what is padding, and tensors as kernels take them."""

from collections.abc import Sequence

import torch
from torch import Tensor

COMPUTED_IN = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
"""What a kernel computes in, by what it is given."""


def first_rows(tensor: Tensor, rows: int) -> Tensor:
    """Its first rows."""
    return tensor if rows == tensor.shape[0] else tensor[:rows]


def computable(tensors: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
    """The tensors as kernels take them."""
    if all([v.dtype == dtype and v.is_contiguous() for v in tensors]):
        return tensors
    return [v.to(dtype).contiguous() for v in tensors]


def readable(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows (S, W) as kernels read them: each without gaps, and any distance apart."""
    tensor = tensor if tensor.dtype == dtype else tensor.to(dtype)
    return tensor if tensor.stride(1) == 1 or tensor.shape[1] == 1 else tensor.contiguous()


def unwritten(S: int, width: int, rows: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Unwritten where steps are, zero where padding is."""
    memory = like.new_empty(S, width, dtype=dtype)
    if rows < S:
        memory[rows:].zero_()
    return memory
