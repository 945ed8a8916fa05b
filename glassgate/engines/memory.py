"""Allocation of a call's memory, and conversion of tensors to the form that kernels read."""

import ctypes
import mmap
from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import torch
from torch import Tensor

LARGE = 2**22
"""The size in bytes from which memory is requested in huge pages."""

COMPUTED_IN = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
"""The dtype in which kernels compute, by the dtype of their tensors."""


_CPU = torch.device("cpu")
_advise = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_HUGEPAGE") else None


def empty(form: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Uninitialised CPU memory.

    Large memory uses huge pages where Linux has them. The first write to a page causes a fault, and with small pages
    the faults take longer than the kernels.
    """
    memory = torch.empty(form, dtype=dtype, device=_CPU)
    size = memory.nbytes
    if size >= LARGE and _advise is not None:
        start = memory.data_ptr() + -memory.data_ptr() % mmap.PAGESIZE
        _advise(ctypes.c_void_p(start), ctypes.c_size_t(memory.data_ptr() + size - start), mmap.MADV_HUGEPAGE)
    return memory


def allocator(form: Sequence[int], dtype: torch.dtype) -> Callable[[], Tensor]:
    """A function that allocates such memory. Small memory is allocated by torch's fastest function."""
    if prod(form) * dtype.itemsize < LARGE:
        return partial(torch.empty_like, torch.empty((), dtype=dtype, device=_CPU).expand(tuple(form)))
    return partial(empty, form, dtype)


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on another device. The call does not wait for a copy to a GPU."""
    if device.type != "cuda" or torch.compiler.is_compiling():
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def first_rows(tensor: Tensor, rows: int) -> Tensor:
    """The first rows of a tensor."""
    return tensor if rows == tensor.shape[0] else tensor[:rows]


def computable(tensors: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
    """The tensors, contiguous and in the dtype of the kernels."""
    if all([v.dtype == dtype and v.is_contiguous() for v in tensors]):
        return tensors
    return [v.to(dtype).contiguous() for v in tensors]


def readable(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows (S, W) as kernels read them: each row is contiguous, with any stride between rows."""
    tensor = tensor if tensor.dtype == dtype else tensor.to(dtype)
    return tensor if tensor.stride(1) == 1 or tensor.shape[1] == 1 else tensor.contiguous()


def unwritten(S: int, width: int, rows: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Memory of S rows, uninitialised in the first `rows`, zero in the padding after them."""
    memory = empty((S, width), dtype or like.dtype)
    if rows < S:
        memory[rows:].zero_()
    return memory
