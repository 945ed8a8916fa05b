"""The pure functions that a step may call while it is traced.

The functions that a step calls run only during tracing, and kernels reuse their results. An impure function may return
another result at each call, or have side effects. A cell that calls one therefore runs on the reference engine.
`watch.py` handles the values that a step may read.
"""

import builtins
import random
import re
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from glassgate.engines.symbolic.libraries import package_of, top_package
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.engines.torch_names import torch_functions

_BUILTINS = frozenset(
    {"abs", "all", "any", "ascii", "bin", "callable", "chr", "divmod", "format", "getattr", "hasattr", "hash", "hex"}
    | {"isinstance", "issubclass", "iter", "len", "max", "min", "next", "oct", "ord", "pow", "repr", "round", "setattr"}
    | {"sorted", "sum", "__build_class__"}
)
"""Built-in functions whose result depends only on their arguments. `Watch` detects what `setattr` and `next` change."""
_TYPES = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    tuple,
    list,
    dict,
    set,
    frozenset,
    range,
    slice,
    re.Pattern,
)
"""Types whose methods, like those of tensors, give results that depend only on the arguments."""
_C_MODULES = frozenset({"math", "cmath", "_operator", "_functools", "_bisect", "_collections"})
_PYTHON_MODULES = frozenset(
    {"_collections_abc", "abc", "collections", "contextlib", "copy", "dataclasses", "decimal", "enum", "fractions"}
    | {"functools", "numbers", "operator", "re", "statistics", "string", "types", "typing"}
)
_TORCH_MODULES = ("torch._", "torch.nn.", "torch.functional", "torch.overrides", "torch.utils._python_dispatch")
_REFUSED_ELSEWHERE = ("torch.autograd.", "torch.amp.", "torch.utils._contextlib", "random")
"""Modules that this check permits, because other checks refuse them with specific messages: random numbers, autocast,
modes of autograd."""
_READS_FILES = frozenset({"from_file"})
"""Functions of torch that are not pure, because they read files."""
_NUMPY_MODULES = ("numpy._core.", "numpy.core.", "numpy.lib._function_base", "numpy.lib._shape_base")


class Impure(NotTraceable):
    """A call of a function that is not known to be pure."""


def refuse_impure(caller: FrameType, called: Any, is_watched: Callable[[CodeType], bool] | None = None) -> None:
    """Raise an error if the code of a cell's author calls a function that is not known to be pure.

    Args:
        caller: the frame that contains the call.
        called: a built-in function, or the frame of a Python function.
        is_watched: whether changes of the values that the code of a function reads are noticed. If given, the author's
            other functions are refused.

    Raises:
        NotTraceable: the function draws random numbers, or is not known to be pure.
    """
    _refuse_draw(called)
    package = package_of(called.f_globals) if isinstance(called, FrameType) else None
    if package == "" and is_watched is not None and not is_watched(called.f_code) and not _is_inside_import(caller):
        raise Impure(f"calls {called.f_code.co_qualname}(), a function whose changes cannot be watched")
    if package_of(caller.f_globals):
        return
    if isinstance(called, FrameType):
        module, name = called.f_globals.get("__name__") or "", called.f_code.co_qualname
        if package in ("", "glassgate") or _is_pure_python(module, name):
            return
    else:
        module, name = getattr(called, "__module__", None) or "", getattr(called, "__qualname__", repr(called))
        if _is_pure_builtin(called, module, name):
            return
    if _is_inside_import(caller):  # imports are permitted
        return
    name = name if module in ("", "builtins") else f"{module}.{name}"
    raise Impure(f"calls {name}(), which is not known to give the same result every time")


def _is_inside_import(frame: FrameType | None) -> bool:
    """Whether an import runs this code. torch imports modules on first use, and import hooks are impure."""
    while frame is not None and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back
    return frame is not None


def _is_pure_python(module: str, name: str) -> bool:
    package = top_package(module)
    if package == "torch":
        is_type_check = module == "torch" and name == "is_tensor"
        return is_type_check or f"{module}.".startswith((*_TORCH_MODULES, *_REFUSED_ELSEWHERE))
    if package == "numpy":
        return module.startswith(_NUMPY_MODULES) and "memmap" not in module
    return module in _PYTHON_MODULES or module in _REFUSED_ELSEWHERE or module.startswith("collections.")


def _is_pure_builtin(function: Any, module: str, name: str) -> bool:
    owner = getattr(function, "__self__", None)
    if owner is builtins or module == "builtins":
        return name in _BUILTINS or isinstance(owner, _TYPES)
    kind = getattr(function, "__objclass__", None) or (owner if isinstance(owner, type) else type(owner))
    if owner is not None and issubclass(kind, (*_TYPES[1:], Tensor)):
        return True
    if getattr(function, "__objclass__", None) is not None and issubclass(kind, (*_TYPES, Tensor)):
        return True
    if module in _C_MODULES or (top_package(module) == "numpy" and not module.startswith("numpy.random")):
        return True
    short_name = function.__name__
    is_torch_function = any([getattr(namespace, short_name, None) == function for namespace in torch_functions])
    return (is_torch_function and short_name not in _READS_FILES) or function is torch.tensor


def _refuse_draw(function: Any) -> None:
    """Refuse a draw of random numbers before it happens, because other threads use the same generators."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, random.Random | torch.Generator):
        library = "torch" if isinstance(owner, torch.Generator) else "Python"
        raise NotTraceable(f"random numbers from {library}'s generator")


class NoRandomNumbers(TorchDispatchMode):
    """A context in which drawing random numbers with torch on this thread raises `NotTraceable`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NotTraceable("random numbers from torch's generator")
        return func(*args, **(kwargs or {}))
