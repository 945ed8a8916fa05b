"""A CUDA GPU, simulated on the CPU. Its tensors report the device cuda:0, and store their numbers in CPU tensors.

Operations that mix devices raise an error, as on a GPU. Operations that make the CPU wait for the GPU raise an error
too, or are only listed.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from traceback import extract_stack
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

import glassgate
from glassgate.engines.torch_op import operators
from glassgate.engines.triton_gpu import frozen, graphs
from glassgate.engines.triton_gpu.arrays import engine as array_engine
from glassgate.engines.triton_gpu.launch import Launch

aten = torch.ops.aten
GPU = torch.device("cuda", 0)
PACKAGE = Path(glassgate.__file__).parent
H100 = {"major": 9, "minor": 0, "multi_processor_count": 132, "shared_memory_per_block_optin": 232_448}

WAITING = {
    aten._local_scalar_dense, aten.nonzero, aten.is_nonzero, aten.masked_select, aten.equal, aten.item,
    aten._unique2, aten.unique_dim, aten.unique_consecutive, aten.bincount,
}  # fmt: skip
"""Operations whose result, or the size of their result, must be copied from the GPU to the CPU."""

INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._unsafe_index, aten._index_put_impl_}
READS_SIZES_ON_CPU = {aten._pack_padded_sequence, aten._pad_packed_sequence, aten._pack_padded_sequence_backward}


class Waits(RuntimeError):
    """An operation makes the CPU wait for the GPU."""


class OnGPU(Tensor):
    """A tensor of the simulated GPU. torch's C++ code sees the device meta, because it has no code for GPUs here.

    Args:
        numbers: a tensor on the CPU with its numbers.
    """

    numbers: Tensor
    device, is_cuda, is_cpu, is_meta = GPU, True, False, False  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, numbers: Tensor) -> "OnGPU":
        with torch.inference_mode(False):  # a normal tensor also in inference mode, like views of parameters
            tensor: OnGPU = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls,
                numbers.shape,
                strides=numbers.stride(),
                storage_offset=numbers.storage_offset(),
                dtype=numbers.dtype,
                device="meta",
            )
        tensor.numbers = numbers
        return tensor

    def data_ptr(self) -> int:
        return self.numbers.data_ptr()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def new_tensor(self, data: Any, dtype: torch.dtype | None = None) -> Tensor:  # type: ignore[override]
        return torch.tensor(data, dtype=dtype or self.dtype).to(GPU)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"OnGPU({self.numbers!r})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return SimulatedGPU(may_wait=True).compute(function, args, kwargs or {})


class SimulatedGPU(TorchDispatchMode):
    """A mode in which operations on tensors of the simulated GPU behave as on a GPU.

    Args:
        may_wait: whether operations that wait are listed in `waits` and do not raise an error.
    """

    def __init__(self, may_wait: bool = False) -> None:
        super().__init__()
        self.may_wait, self.waits = may_wait, list[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        implementation = {
            torch.ops.glassgate.layer.default: operators.layer,
            torch.ops.glassgate.layer_forward.default: operators.layer_forward,
            torch.ops.glassgate.layer_backward.default: operators.layer_backward,
        }.get(function)
        if implementation is not None:
            with self:
                return implementation(*args, **(kwargs or {}))
        if torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CompositeImplicitAutograd"):
            with self:  # in inference mode, operations such as `to` come here before they are split
                return function.decompose(*args, **(kwargs or {}))
        return self.compute(function, args, kwargs or {})

    def compute(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the result of an operation."""
        tensors = [v for v in tree_leaves((args, kwargs)) if isinstance(v, Tensor)]
        on_gpu = [isinstance(v, OnGPU) for v in tensors]
        to = kwargs.get("device")
        goes_to_gpu = any(on_gpu) if to is None else torch.device(to).type in ("cuda", "meta")
        operation = function.overloadpacket
        if operation in (aten._to_copy, aten.copy_):
            self._check_copy(operation, tensors, on_gpu, goes_to_gpu, args, kwargs)
        elif any(on_gpu):
            self._check(operation, tensors, on_gpu, args, kwargs)
        own = {id(v.numbers): v for v in tensors if isinstance(v, OnGPU)}
        options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
        if to is not None:
            options["device"] = torch.device("cpu")
        args, options = tree_map(lambda v: v.numbers if isinstance(v, OnGPU) else v, (args, options))
        result = function(*args, **options)

        def wrapped(v: Any) -> Any:
            if not isinstance(v, Tensor):
                return v
            return own[id(v)] if id(v) in own else OnGPU(v) if goes_to_gpu else v

        return tree_map(wrapped, result)

    def wait(self, reason: str) -> None:
        """Raise `Waits` for an operation, or list it with the calling line of glassgate if it may wait."""
        if not self.may_wait:
            raise Waits(reason)
        frames = [frame for frame in extract_stack() if PACKAGE in Path(frame.filename).parents]
        line = f"{Path(frames[-1].filename).relative_to(PACKAGE)}:{frames[-1].lineno}" if frames else "the caller"
        self.waits.append(f"{line}: {reason}")

    def _check_copy(
        self, operation: Any, tensors: list[Tensor], on_gpu: list[bool], goes_to_gpu: bool, args: Any, kwargs: Any
    ) -> None:
        """Check a copy: `copy_(to, source)` or `_to_copy(source)`."""
        source, source_on_gpu = tensors[-1], on_gpu[-1]
        goes_to_gpu = on_gpu[0] if operation is aten.copy_ else goes_to_gpu
        asynchronous = kwargs.get("non_blocking") or (operation is aten.copy_ and args[2:] == (True,))
        if source_on_gpu and not goes_to_gpu:
            self.wait("a copy from the GPU to the CPU")
        if goes_to_gpu and not source_on_gpu and not (asynchronous and getattr(source, "is_in_pinned_memory", False)):
            self.wait("a copy from memory that is not pinned to the GPU")

    def _check(self, operation: Any, tensors: list[Tensor], on_gpu: list[bool], args: Any, kwargs: Any) -> None:
        """Check an operation that reads a tensor on the GPU."""
        if operation in WAITING or (operation is aten.repeat_interleave and kwargs.get("output_size") is None):
            self.wait(str(operation))
        indices = [v for v in tree_leaves(args[1]) if isinstance(v, Tensor)] if operation in INDEXING else []
        fills = len(args) > 2 and isinstance(args[2], Tensor) and args[2].numel() == 1
        if not fills and any(isinstance(v, OnGPU) and v.dtype in (torch.bool, torch.uint8) for v in indices):
            self.wait(f"{operation} with a mask")
        for v, here in zip(tensors, on_gpu, strict=True):
            if here or operation in READS_SIZES_ON_CPU:
                continue
            if any(v is index for index in indices):
                self.wait(f"{operation} with an index on the CPU")
            elif v.dim():
                raise RuntimeError(f"{operation}: expected all tensors on the same device, got cuda:0 and cpu")
            elif operation is aten.where:
                self.wait("where with a number in a tensor on the CPU")


LOWER = {
    "linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "conv1d",
    "scaled_dot_product_attention",
}  # fmt: skip
"""The functions that autocast of CUDA runs in half precision."""

FULL = {
    "exp", "expm1", "log", "log1p", "log2", "pow", "__pow__", "reciprocal", "rsqrt", "softplus", "softmax",
    "log_softmax", "logsumexp", "cumsum", "cumprod", "sum", "prod", "norm", "layer_norm", "cross_entropy", "nll_loss",
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "cosine_similarity",
    "cdist",
}  # fmt: skip
"""The functions that autocast runs in float32."""

WIDEST = {"cat", "stack", "addcmul", "addcdiv", "dot", "index_put", "index_put_", "scatter_add", "scatter_add_"}
"""The functions that autocast runs in the widest dtype of their tensors."""


class Autocast(TorchFunctionMode):
    """Applies the dtype rules of `torch.autocast("cuda")`, which torch applies only to tensors on real GPUs."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(function, "__name__", "")
        if torch.is_autocast_enabled("cuda"):
            tensors = [v for v in tree_leaves((args, kwargs)) if isinstance(v, OnGPU) and v.is_floating_point()]
            dtypes = {v.dtype for v in tensors} - {torch.float64}
            target = torch.get_autocast_dtype("cuda") if name in LOWER else torch.float32
            if dtypes and (name in LOWER or name in FULL or (name in WIDEST and len(dtypes) > 1)):
                cast = {id(v) for v in tensors if v.dtype not in (torch.float64, target)}
                args, kwargs = tree_map(lambda v: v.to(target) if id(v) in cast else v, (args, kwargs))
        return function(*args, **kwargs)


def to_gpu(v: Tensor) -> Tensor:
    """A copy of a tensor, on the GPU."""
    return OnGPU(v.detach().clone()).requires_grad_(v.requires_grad)


def to_cpu(v: Tensor) -> Tensor:
    """A copy of a tensor, on the CPU."""
    return v.numbers.clone() if isinstance(v, OnGPU) else v.detach().clone()


def pinned(v: Tensor) -> Tensor:
    """A copy in pinned memory."""
    assert not isinstance(v, OnGPU)
    copy = v.clone()
    copy.is_in_pinned_memory = True  # type: ignore[attr-defined]
    return copy


@contextmanager
def simulated_gpu(monkeypatch: pytest.MonkeyPatch, may_wait: bool = False) -> Iterator[SimulatedGPU]:
    """Operations inside the `with` run as if the machine had a GPU. Kernels run in Triton's interpreter."""
    make_start = Launch.make_start

    def make_cpu_start(self: Launch, *callers: Any) -> Any:
        start = make_start(self, *callers)

        def start_on_cpu(arguments: Any) -> None:
            with _disable_current_modes():
                start([v.numbers if isinstance(v, OnGPU) else v for v in arguments])

        return start_on_cpu

    start_arrays = array_engine.start

    def start_arrays_on_cpu(function: Any, jobs: int, arguments: Any, options: Any) -> None:
        with _disable_current_modes():
            start_arrays(function, jobs, [v.numbers if isinstance(v, OnGPU) else v for v in arguments], options)

    with monkeypatch.context() as patch:
        patch.setattr(Launch, "make_start", make_cpu_start)
        patch.setattr(array_engine, "start", start_arrays_on_cpu)
        for module in (frozen, graphs):
            patch.setattr(module, "capture", lambda run, device: run)
        patch.setattr(Tensor, "pin_memory", pinned)
        patch.setattr(torch.cuda, "_lazy_init", lambda: None)
        patch.setattr(torch.cuda, "device", lambda device: nullcontext())
        patch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(**H100))
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (2**36, 2**36))
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
        patch.setattr(torch.cuda, "device_count", lambda: 2)
        patch.setattr(torch.random, "_fork_rng_warned_already", False)
        patch.setattr(torch.cuda, "set_device", lambda device: None)
        patch.setattr(torch.cuda, "get_rng_state", lambda device="cuda": torch.get_rng_state())
        patch.setattr(torch.cuda, "set_rng_state", lambda state, device="cuda": None)
        patch.setattr(torch.cuda, "manual_seed_all", lambda seed: None)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        patch.setattr(torch.cuda, "current_stream", lambda device=None: SimpleNamespace(cuda_stream=0))
        with Autocast(), SimulatedGPU(may_wait) as gpu:
            yield gpu
