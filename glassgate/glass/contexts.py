"""Contexts for recording, editing and analysing models: one runs modules uncompiled, one runs them in eval mode."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn


def uncompiled(operation: str) -> AbstractContextManager[None]:
    """A context in which modules compiled by `torch.compile` run as plain Python, which can be recorded and edited.

    Raises:
        RuntimeError: the context begins inside a compiled function.
    """
    if "torch._dynamo" not in sys.modules:  # no function has been compiled
        return nullcontext()
    done = {"record": "recorded", "edit": "edited", "relevance": "explained"}[operation]
    message = f"{operation}: nothing can be {done} inside of a compiled function; begin outside of it"
    if torch.compiler.is_compiling():
        raise RuntimeError(message)
    try:
        return torch.compiler.set_stance("force_eager")
    except RuntimeError:
        raise RuntimeError(message) from None


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """A context in which all modules of a model are in eval mode. Their modes are restored afterwards."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode
