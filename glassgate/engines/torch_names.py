"""The private names of torch that describe its state, each with a fallback for versions of torch without it.

With the fallbacks, results are the same, but some calls take longer.
"""

from collections.abc import Callable
from functools import reduce
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

MISSING: list[str] = []
"""The private names that this version of torch does not have."""


def find(path: str, fallback: Any) -> Any:
    """Return the object with a dotted name in torch. If there is none, list it in `MISSING` and return the fallback."""
    try:
        return reduce(getattr, path.split("."), torch)
    except AttributeError:
        MISSING.append(path)
        return fallback


def find_all(*paths: str) -> Any:
    """Return the objects with these names in torch as attributes, by the last part of the name; None if one is missing.

    Each missing name is listed in `MISSING`.
    """
    found = {path.rpartition(".")[2]: find(path, None) for path in paths}
    return None if None in found.values() else SimpleNamespace(**found)


def _public_precision(backend: str, operation: str) -> str:
    """The setting of a backend, e.g. "tf32"; "none" if torch has no setting of this kind, as before version 2.9."""
    settings = getattr(getattr(torch.backends, "cudnn" if backend == "cuda" else backend, None), operation, None)
    return str(getattr(settings, "fp32_precision", "none"))


def mark_constant(function: Callable[..., Any]) -> Any:
    """Mark a function whose result torch.compile treats as a constant.

    `torch.compiler.assume_constant_result` does the same, but imports the whole compiler.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@mark_constant
def has_autocast(device: str) -> bool:
    """Whether a device type supports autocast. Before version 2.10, torch.compile cannot trace torch's function."""
    return torch.amp.is_autocast_available(device)


def _version_of(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


VERSION = _version_of(torch.__version__)
"""The major and the minor version of torch."""

dispatch_mode_count: Callable[[], int] = find("_C._len_torch_dispatch_stack", lambda: 0)
"""The number of active dispatch modes, for example that of fake tensors."""
top_transform: Callable[[], object | None] = find("_C._functorch.peek_interpreter_stack", lambda: None)
"""The innermost active transform of torch.func; None outside of transforms."""


def to_list(integers: Tensor) -> list[int]:
    """The numbers of a tensor. Before version 2.11, `tolist` fails in transforms of torch.func."""
    if VERSION < (2, 11) and top_transform() is not None:
        return [int(n) for n in integers]
    return integers.tolist()


tracing_state: Callable[[], object | None] = find("_C._get_tracing_state", lambda: torch.jit.is_tracing() or None)
"""The state of `torch.jit.trace`; None if it is not active."""
saved_tensor_hooks: Callable[[bool], object | None] = find(
    "_C._autograd._top_saved_tensors_default_hooks", lambda ignore_in_tracing: True
)
"""The innermost default hooks on saved tensors; None without such hooks."""
frame_callback: Callable[[], object] = find("_C._dynamo.eval_frame.get_eval_frame_callback", lambda: None)
"""The callback of torch.compile for new frames: callable if torch.compile runs the current frame eagerly."""
float32_precision: Callable[[str, str], str] = find("_C._get_fp32_precision_getter", _public_precision)
"""The precision of float32 products of a backend ("mkldnn", "cuda") in an operation ("rnn"); "none" by default."""
is_wrapped: Callable[[torch.Tensor], bool] = find("_C._functorch.is_functorch_wrapped_tensor", lambda tensor: False)
"""Whether a tensor belongs to a transform of torch.func. Without this name, kernels raise torch's error."""
is_legacy_batch: Callable[[torch.Tensor], bool] = find("_C._functorch.is_legacy_batchedtensor", lambda tensor: False)
"""Whether a tensor is a batch of gradients (`is_grads_batched`). The same holds without this name."""
has_global_hook: Callable[[], bool] = find("nn.modules.module._has_any_global_hook", lambda: True)
"""Whether hooks of all modules are registered. Without this name, kernels refuse steps that call modules."""
torch_functions: tuple[Any, Any] = (find("_C._VariableFunctions", torch), find("_C._nn", torch.nn.functional))
"""The namespaces of functions that torch implements in C++. Without these names, kernels refuse some of them."""
assert_later: Callable[[Tensor, str], None] = find("_assert_async", lambda is_valid, message: None)
"""Raises an error if a tensor of a compiled graph is False. Without this name, the graph does not check it."""
below_autograd: Any = find("_C._AutoDispatchBelowAutograd", None)
"""A context in which operators do not run their gradients. Without it, compiled training runs without kernels."""
functorch = find_all(
    "_C._functorch.CGradInterpreterPtr.lift",
    "_C._functorch.TransformType",
    "_C._functorch._add_batch_dim",
    "_C._functorch._unwrap_batched",
    "_C._functorch._unwrap_for_grad",
    "_C._functorch._wrap_for_grad",
    "_C._functorch.get_interpreter_stack",
    "_C._functorch.unwrap_if_dead",
    "_functorch.autograd_function.VmapInfo",
    "_functorch.pyfunctorch.retrieve_current_functorch_interpreter",
    "_functorch.utils.enable_single_level_autograd_function",
    "autograd.forward_ad._set_fwd_grad_enabled",
    "autograd.function._SingleLevelFunction",
)
"""The parts of torch.func; None if one is missing. Calls inside transforms are then slower."""
forward_ad: ModuleType | SimpleNamespace = (
    torch.autograd.forward_ad
    if find("autograd.forward_ad._current_level", None) is not None
    else SimpleNamespace(_current_level=0)  # every call then takes the path for forward-mode differentiation
)
"""`torch.autograd.forward_ad`. Its attribute `_current_level` is negative if forward-mode differentiation is inactive.
"""
