"""The environment of a measurement."""

import platform

import torch

from glassgate.system import SYSTEM


def machine() -> dict[str, str | int]:
    """Return the processor, the number of threads, and the versions of torch and Python."""
    return {
        "processor": SYSTEM.processor_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
