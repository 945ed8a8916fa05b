"""Rejects random numbers in a step before they are drawn, because other threads use the same generators."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from glassgate.engines.symbolic.graph import NotTraceable


class NoRandomNumbers(TorchDispatchMode):
    """A context in which drawing random numbers with torch on this thread raises `NotTraceable`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NotTraceable("random numbers from torch's generator")
        return func(*args, **(kwargs or {}))
