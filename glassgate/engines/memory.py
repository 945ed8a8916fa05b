"""Allocation of the memory of a call, and conversion of tensors to the dtype and layout that kernels read."""

import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from glassgate.engines.blocks import Blocks
from glassgate.engines.contract import PLAIN_TYPES, is_intercepted
from glassgate.system import SYSTEM

LARGE, REUSED = 2**22, 2**25
"""Tensors of at least `LARGE` bytes use huge pages. The memory of tensors of at least `REUSED` bytes is kept for later
calls; the C library keeps only smaller blocks.
"""
MAX_FREE = 2**30
"""The largest total size of memory that is kept for later calls, in bytes."""

LOW_ADDRESS = 2**32
"""Valid addresses are rarely lower. If an address is lower, a call checks whether each tensor has memory."""
NO_MEMORY = "a tensor has no memory: its storage was freed, or its class overrides torch's operations"

COMPUTE_DTYPE = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
"""The dtype in which kernels compute, by the dtype of the input."""

_CPU = torch.device("cpu")
_blocks = Blocks(MAX_FREE)


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor on the CPU.

    The first write to a new page of memory causes a page fault. With small pages, the faults of a large tensor can take
    longer than the kernels. On Linux, tensors of at least `LARGE` bytes therefore use huge pages, and those of at least
    `REUSED` bytes use the memory of earlier tensors.
    """
    size = prod(shape) * dtype.itemsize
    if size >= REUSED and SYSTEM.has_huge_pages:
        # `resize_` returns no view, unlike `view`. Therefore callers may change the tensor in place.
        return torch.frombuffer(_blocks.take(size), dtype=dtype, count=prod(shape)).resize_(shape)
    memory = torch.empty(shape, dtype=dtype, device=_CPU)
    if size >= LARGE and SYSTEM.has_huge_pages:
        start = memory.data_ptr() + -memory.data_ptr() % mmap.PAGESIZE
        SYSTEM.advise_huge_pages(start, memory.data_ptr() + size - start)
    return memory


def empty_like(tensor: Tensor) -> Tensor:
    """Like `empty(tensor.shape, tensor.dtype)` for a contiguous tensor, but faster for small tensors."""
    return torch.empty_like(tensor) if tensor.nbytes < LARGE else empty(tensor.shape, tensor.dtype)


def allocator(shape: Sequence[int], dtype: torch.dtype) -> Callable[[], Tensor]:
    """A function that returns `empty(shape, dtype)`. For small tensors, it is torch's fastest allocation function."""
    if prod(shape) * dtype.itemsize < LARGE:
        return partial(torch.empty_like, torch.empty((), dtype=dtype, device=_CPU).expand(tuple(shape)))
    return partial(empty, shape, dtype)


class MatrixBlock:
    """The layout of several matrices (S, width) in one block of memory. One allocation takes less time than several.

    Args:
        S: the number of rows.
        widths: the name and the width of each matrix.
        dtype: the dtype of all matrices.
    """

    def __init__(self, S: int, widths: Sequence[tuple[str, int]], dtype: torch.dtype) -> None:
        self.shapes = {name: (S, width) for name, width in widths}
        *starts, count = accumulate([S * width for _, width in widths], initial=0)
        self.offsets = [start * dtype.itemsize for start in starts]
        self.new_memory = allocator((count,), dtype)
        """Allocates an uninitialised block."""


class Matrices(Mapping[str, Tensor]):
    """New matrices (S, width) by name. They are views of one block of memory, created when a matrix is first read."""

    def __init__(self, block: MatrixBlock) -> None:
        self._block, self._memory = block, block.new_memory()
        self._views: dict[str, Tensor] = {}

    def addresses(self) -> list[int]:
        """The address of each matrix."""
        return [*map(self._memory.data_ptr().__add__, self._block.offsets)]

    def zero_from(self, row: int) -> None:
        """Set this row and all rows after it to zero, in each matrix."""
        for matrix in self.values():
            matrix[row:].zero_()

    def __getitem__(self, name: str) -> Tensor:
        if not self._views:
            shapes = self._block.shapes
            parts = self._memory.split([*map(prod, shapes.values())])
            self._views = {name: v.view(shape) for (name, shape), v in zip(shapes.items(), parts, strict=True)}
        return self._views[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._block.shapes)

    def __len__(self) -> int:
        return len(self._block.shapes)


@lru_cache(256)
def matrix_block(S: int, widths: tuple[tuple[str, int], ...], dtype: torch.dtype) -> MatrixBlock:
    """A cached `MatrixBlock`."""
    return MatrixBlock(S, widths, dtype)


def move_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to another device. A copy from the CPU to a GPU is asynchronous."""
    if device.type != "cuda" or tensor.device.type != "cpu" or torch.compiler.is_compiling():
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def first_rows(tensor: Tensor, rows: int) -> Tensor:
    """The first rows of a tensor."""
    return tensor if rows == tensor.shape[0] else tensor[:rows]


def in_memory(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return tensors whose numbers are in memory, where kernels read them.

    torch negates a tensor such as `z.conj().imag` only when it reads it, and stores no zeros for some gradients. Such
    tensors are copied. Tensors on other devices and inside of traces and transforms are returned unchanged.

    Raises:
        RuntimeError: the memory of a tensor was freed.
    """
    if is_intercepted():
        return tensors
    on_cpu = [v for v in tensors if type(v) in PLAIN_TYPES and v.is_cpu]
    computed_later = [v for v in on_cpu if v.is_neg() or v._is_zerotensor()]
    if computed_later:
        return in_memory([v.clone() if any([v is lazy for lazy in computed_later]) else v for v in tensors])
    for tensor in on_cpu:
        storage = tensor.untyped_storage()
        if tensor.numel() and (storage.nbytes() < _required_bytes(tensor) or not storage.data_ptr()):
            raise RuntimeError(
                f"a tensor of shape {tuple(tensor.shape)} has no memory: its storage was freed "
                "(`untyped_storage().resize_(0)`, as sharded training does between uses); restore it before the call"
            )
    return tensors


def readable(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return tensors as `in_memory` does, for kernels, which read the addresses of all of them.

    Raises:
        RuntimeError: a tensor has no memory: it was freed, or the tensor is of a class that stores no numbers, such as
            `FakeTensor`, whose view may have an address that is not zero.
    """
    tensors = in_memory(tensors)
    if any([v.numel() and not (v.data_ptr() and v.untyped_storage().data_ptr()) for v in tensors]):
        raise RuntimeError(NO_MEMORY)
    return tensors


def _required_bytes(tensor: Tensor) -> int:
    """The size that the storage of a tensor with elements must have."""
    last = sum([(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)])
    return (int(tensor.storage_offset()) + int(last) + 1) * tensor.itemsize


def to_contiguous(tensors: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
    """Return the tensors as contiguous tensors of this dtype, or `tensors` itself if all of them already are."""
    if all([v.dtype == dtype and v.is_contiguous() for v in tensors]):
        return tensors
    return [v.to(dtype).contiguous() for v in tensors]


def to_contiguous_rows(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a matrix with this dtype and contiguous rows. The stride between rows is arbitrary."""
    tensor = tensor if tensor.dtype == dtype else tensor.to(dtype)
    return tensor if tensor.stride(1) == 1 or tensor.shape[1] == 1 else tensor.contiguous()


def empty_rows(S: int, width: int, rows: int, dtype: torch.dtype) -> Tensor:
    """A tensor (S, width). Its first `rows` rows are uninitialised. The rows after them are padding and zero."""
    memory = empty((S, width), dtype)
    if rows < S:
        memory[rows:].zero_()
    return memory
