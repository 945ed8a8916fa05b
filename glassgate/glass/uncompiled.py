"""Runs compiled modules as plain Python while gates are recorded or edited, which a compiled graph cannot do."""

import sys
from contextlib import AbstractContextManager, nullcontext

import torch


def uncompiled(operation: str) -> AbstractContextManager[None]:
    """A context in which modules compiled by `torch.compile` run as plain Python.

    Raises:
        RuntimeError: the context begins inside a compiled function.
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
