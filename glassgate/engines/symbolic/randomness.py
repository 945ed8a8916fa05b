"""A step's random numbers are refused before they are drawn: the generators belong to other threads, too."""

import random
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from glassgate.engines.symbolic.graph import NotTraceable


class NoRandomNumbers(TorchDispatchMode):
    """Inside, whatever this thread would draw with torch is refused."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise _refusal("torch")
        return func(*args, **(kwargs or {}))


def refuse_draw(function: Any) -> None:
    """Refuses a built-in function that is about to draw with Python's `random`, or to seed one of torch's generators.

    Raises:
        NotTraceable: if it is one.
    """
    owner = getattr(function, "__self__", None)
    if isinstance(owner, random.Random | torch.Generator):
        raise _refusal("torch" if isinstance(owner, torch.Generator) else "Python")


def _refusal(owner: str) -> NotTraceable:
    return NotTraceable(f"random numbers from {owner}'s generator")
