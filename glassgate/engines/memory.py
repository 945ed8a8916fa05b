"""Allocation of a call's memory, and conversion of tensors to the form that kernels read."""

import ctypes
import mmap
from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import torch
from torch import Tensor

LARGE = 2**22
"""Memory of at least this many bytes uses huge pages."""

COMPUTED_IN = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
"""The dtype in which kernels compute, by the dtype of their tensors."""

_CPU = torch.device("cpu")
_advise = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_HUGEPAGE") else None


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor on the CPU.

    A large tensor uses huge pages where Linux has them. The first write to a page causes a page fault, and with small
    pages the faults take longer than the kernels.
    """
    memory = torch.empty(shape, dtype=dtype, device=_CPU)
    size = memory.nbytes
    if size >= LARGE and _advise is not None:
        start = memory.data_ptr() + -memory.data_ptr() % mmap.PAGESIZE
        _advise(ctypes.c_void_p(start), ctypes.c_size_t(memory.data_ptr() + size - start), mmap.MADV_HUGEPAGE)
    return memory


def allocator(shape: Sequence[int], dtype: torch.dtype) -> Callable[[], Tensor]:
    """A function that returns `empty(shape, dtype)`. For small tensors it uses torch's fastest allocation function."""
    if prod(shape) * dtype.itemsize < LARGE:
        return partial(torch.empty_like, torch.empty((), dtype=dtype, device=_CPU).expand(tuple(shape)))
    return partial(empty, shape, dtype)


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to another device. A copy from the CPU to a GPU is asynchronous."""
    if device.type != "cuda" or tensor.device.type != "cpu" or torch.compiler.is_compiling():
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def first_rows(tensor: Tensor, rows: int) -> Tensor:
    """The first rows of a tensor."""
    return tensor if rows == tensor.shape[0] else tensor[:rows]


def computable(tensors: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
    """The tensors, contiguous and with the dtype in which the kernels compute."""
    if all([v.dtype == dtype and v.is_contiguous() for v in tensors]):
        return tensors
    return [v.to(dtype).contiguous() for v in tensors]


def readable(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows (S, W) as kernels read them: with this dtype, each row contiguous, any stride between rows."""
    tensor = tensor if tensor.dtype == dtype else tensor.to(dtype)
    return tensor if tensor.stride(1) == 1 or tensor.shape[1] == 1 else tensor.contiguous()


def empty_rows(S: int, width: int, rows: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor (S, width) whose first `rows` rows are uninitialised. The rows after them are padding and zero."""
    memory = empty((S, width), dtype or like.dtype)
    if rows < S:
        memory[rows:].zero_()
    return memory
