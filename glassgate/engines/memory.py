"""The memory of a call, and tensors in the form that kernels read."""

import ctypes
import mmap
from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import torch
from torch import Tensor

LARGE = 2**22
"""Bytes from which memory is asked for in huge pages."""

COMPUTED_IN = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
"""The type that kernels compute in, by the type of their tensors."""


_CPU = torch.device("cpu")
_advise = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_HUGEPAGE") else None


def empty(form: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Unwritten memory of the CPU.

    A large piece comes in huge pages where Linux has them: the first write to a page is a fault, and with small pages
    faults take longer than kernels do.
    """
    memory = torch.empty(form, dtype=dtype, device=_CPU)
    size = memory.nbytes
    if size >= LARGE and _advise is not None:
        start = memory.data_ptr() + -memory.data_ptr() % mmap.PAGESIZE
        _advise(ctypes.c_void_p(start), ctypes.c_size_t(memory.data_ptr() + size - start), mmap.MADV_HUGEPAGE)
    return memory


def allocator(form: Sequence[int], dtype: torch.dtype) -> Callable[[], Tensor]:
    """`empty` with these arguments; torch's own function where the memory is small."""
    if prod(form) * dtype.itemsize < LARGE:
        return partial(torch.empty, tuple(form), dtype=dtype, device=_CPU)
    return partial(empty, form, dtype)


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
    memory = empty((S, width), dtype or like.dtype)
    if rows < S:
        memory[rows:].zero_()
    return memory
