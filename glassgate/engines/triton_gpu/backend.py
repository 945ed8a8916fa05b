"""A CUDA GPU as a backend. Triton is loaded with the first kernel."""

import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from glassgate.cell import Weights
from glassgate.engines.backend import ArrayKernels
from glassgate.engines.contract import Direction, Reason, Steps
from glassgate.engines.plan import Plan
from glassgate.engines.triton_gpu.costs import COSTS
from glassgate.engines.triton_gpu.precision import saved_type

if TYPE_CHECKING:
    from glassgate.engines.triton_gpu.frozen import GPUFrozenDirections
    from glassgate.engines.triton_gpu.layer import GPULayer

INSTALLED = find_spec("triton") is not None
MIN_CAPABILITY = (8, 0)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

MAX_ELEMENTS = 2**31 - 1
"""The largest number of elements of a weight. Kernels index weights with 32 bits, sequences and states with 64."""


class GPU:
    """`Backend` for CUDA GPUs. The loop over time runs in Triton kernels, everything before and after it in torch."""

    costs = COSTS

    def why_not(self, steps: Steps, directions: Sequence[Direction]) -> Reason | None:
        """Why the kernels cannot run a call; None if they can."""
        device, rocm, capability = steps.data.device, torch.version.hip is not None, None
        if device.type == "cuda" and not rocm:
            properties = torch.cuda.get_device_properties(device)
            capability = properties.major, properties.minor
        text = why_unsupported(device, rocm, INSTALLED, capability)
        if text is None and steps.data.dtype not in DTYPES:
            text = f"Triton kernels compute in float32, bfloat16 or float16, and the input is {steps.data.dtype}"
        for direction in directions:
            for v in direction.weights.values():
                if text is None and v.numel() > MAX_ELEMENTS:
                    text = f"Triton kernels index weights with 32 bits, and a weight has {v.numel()} elements"
        return None if text is None else Reason(text)

    @property
    def array_kernels(self) -> ArrayKernels:
        """See `backend.ArrayKernels`."""
        from glassgate.engines.triton_gpu.arrays.engine import ENGINE

        return ENGINE

    def compile(self, plans: tuple[Plan, ...]) -> "GPULayer":
        """Return the kernels of a layer. They are compiled when they first run."""
        return _layer(plans)

    def saved_type(self, buffer: str, dtype: torch.dtype) -> torch.dtype:
        """The dtype of a buffer: float32 for row sums, otherwise `dtype`."""
        return saved_type(buffer, dtype)

    def explain(self, steps: Steps, directions: Sequence[Direction]) -> str | None:
        """Describe the kernel that runs the call; None if the backend cannot run it."""
        if self.why_not(steps, directions) is not None:
            return None
        if directions[0].cell.declaration is not None:
            return "one program per sequence and head, with the states in registers"
        from glassgate.engines.triton_gpu.layer import explain_kernel

        return explain_kernel(steps, directions)

    def freeze(
        self, directions: Sequence[Direction], precision: str, scales: Sequence[Weights]
    ) -> "GPUFrozenDirections | Reason":
        """Return a layer with fixed weights. Only float32 is supported."""
        if precision != "float32":
            return Reason(f"precision={precision!r} is for the CPU; on a GPU use precision='float32'")
        from glassgate.engines.triton_gpu.frozen import GPUFrozenDirections

        return GPUFrozenDirections(directions)


def why_unsupported(
    device: torch.device, rocm: bool, installed: bool, capability: tuple[int, int] | None = None
) -> str | None:
    """Why the kernels cannot run on a device; None if they can.

    Args:
        device: the device of the input.
        rocm: whether this torch is built for AMD GPUs.
        installed: whether Triton is installed.
        capability: the compute capability of an NVIDIA GPU.
    """
    if device.type == "mps":
        return "Triton has no backend for Apple GPUs (MPS)"
    if device.type == "cuda" and rocm:
        return "Triton kernels are written for NVIDIA GPUs and have not been tested on AMD GPUs (ROCm)"
    if device.type not in ("cuda", "cpu"):
        return f"Triton kernels run on CUDA GPUs, and the input is on {device}"
    if capability is not None and capability < MIN_CAPABILITY:
        needed, given = (".".join(map(str, each)) for each in (MIN_CAPABILITY, capability))
        return f"Triton supports GPUs of compute capability {needed} (A100, RTX 30) and later, and this one has {given}"
    if not installed:
        return "the package triton is not installed; `pip install glassgate[gpu]` installs it"
    if device.type == "cpu" and not is_interpreted():
        return "Triton kernels run on CUDA GPUs, and the input is on the CPU"
    return None


def is_interpreted() -> bool:
    """Whether Triton's interpreter runs kernels, on tensors of the CPU (TRITON_INTERPRET=1)."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


@lru_cache(1024)
def _layer(plans: tuple[Plan, ...]) -> "GPULayer":
    from glassgate.engines.triton_gpu.layer import GPULayer

    return GPULayer(plans)
