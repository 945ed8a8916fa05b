"""Autograd functions whose calls inside transforms of torch.func take about a quarter of the usual time.

For each call of a `torch.autograd.Function` inside a transform, torch builds a class, and flattens nested containers of
arguments and results several times. This takes longer than a small kernel. Here, the class is cached, and arguments and
results must be flat.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import (
    TransformType,
    _add_batch_dim,
    _unwrap_batched,
    _unwrap_for_grad,
    _wrap_for_grad,
    peek_interpreter_stack,
    unwrap_if_dead,
)
from torch._functorch.autograd_function import VmapInfo
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.autograd.function import _SingleLevelFunction


class FlatFunction(torch.autograd.Function):
    """A `torch.autograd.Function` without nested containers.

    Its arguments are tensors and constants, and its result is a tuple of tensors. A subclass defines `setup_context`,
    `backward`, `jvp`, `vmap`, and `forward` without a context, as for `torch.autograd.Function`.
    """

    @classmethod
    def apply(cls, *args: Any) -> tuple[Tensor, ...]:
        """Call the function at the innermost active transform."""
        args = tuple([unwrap_if_dead(v) if isinstance(v, Tensor) else v for v in args])
        if peek_interpreter_stack() is None:
            return super(torch.autograd.Function, cls).apply(*args)  # type: ignore[misc]
        interpreter: Any = retrieve_current_functorch_interpreter()
        if interpreter.key() == TransformType.Vmap:
            return _call_in_vmap(cls, interpreter, args)
        args = tuple([interpreter._cptr.lift(v) if isinstance(v, Tensor) else v for v in args])
        with enable_single_level_autograd_function():
            return _single_level_function(cls).apply(*args)


def _call_in_vmap(function: type[FlatFunction], interpreter: Any, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Call a function inside a vmap. Use its method `vmap` if an argument has the batch axis of this vmap."""
    level = interpreter.level()
    pairs = [_unwrap_batched(v, level) if isinstance(v, Tensor) else (v, None) for v in args]
    values, dims = zip(*pairs, strict=True)
    with interpreter.lower():
        if all(dim is None for dim in dims):
            return function.apply(*values)
        info = VmapInfo(interpreter.batch_size(), interpreter.randomness())
        results, result_dims = function.vmap(info, dims, *values)
    return tuple(
        [v if dim is None else _add_batch_dim(v, dim, level) for v, dim in zip(results, result_dims, strict=True)]
    )


@cache
def _single_level_function(function: type[FlatFunction]) -> Any:
    """A variant of `function` for one level of grad or jvp. It calls `function` at the next outer level."""

    def forward(*args: Any) -> tuple[Tensor, ...]:
        interpreter: Any = retrieve_current_functorch_interpreter()
        level = interpreter.level()
        unwrapped = [_unwrap_for_grad(v, level) if isinstance(v, Tensor) else v for v in args]
        with torch.enable_grad(), _set_fwd_grad_enabled(True), interpreter.lower():
            results = function.apply(*unwrapped)
        return tuple([_wrap_for_grad(v, level) for v in results])

    rules = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(function.setup_context),
        "backward": staticmethod(function.backward),
        "jvp": staticmethod(function.jvp),
    }
    return type(f"{function.__name__}OfOneLevel", (_SingleLevelFunction,), rules)
