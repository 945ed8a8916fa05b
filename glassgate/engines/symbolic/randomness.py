"""A step's random numbers are refused before they are drawn: other threads draw from the same generators."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from glassgate.engines.symbolic.graph import NotTraceable


class NoRandomNumbers(TorchDispatchMode):
    """Inside, whatever this thread would draw with torch is refused."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NotTraceable("random numbers from torch's generator")
        return func(*args, **(kwargs or {}))
