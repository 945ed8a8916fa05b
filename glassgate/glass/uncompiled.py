"""Compiled modules as they are written, where gates are recorded or edited: a compiled graph shows and changes none."""

import sys
from contextlib import AbstractContextManager, nullcontext

import torch


def uncompiled(operation: str) -> AbstractContextManager[None]:
    """Inside, what `torch.compile` has made runs as plain Python.

    Raises:
        RuntimeError: this is a compiled function.
    """
    done = {"record": "recorded", "edit": "edited", "relevance": "explained"}[operation]
    inside = f"{operation}: nothing can be {done} inside of a compiled function; begin outside of it"
    if torch.compiler.is_compiling():
        raise RuntimeError(inside)
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    try:
        return torch.compiler.set_stance("force_eager")
    except RuntimeError:
        raise RuntimeError(inside) from None
