"""The environment of a measurement."""

import platform
from pathlib import Path

import torch


def machine() -> dict[str, str | int]:
    """Return the processor, the number of threads, and the versions of torch and Python."""
    return {
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
