"""Elementwise functions by name, for cells whose activations are arguments."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

NAMES = (
    "sigmoid", "hardsigmoid", "tanh", "hardtanh", "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu",
    "mish", "hardswish", "softplus", "softsign", "logsigmoid", "tanhshrink", "softshrink", "hardshrink",
)  # fmt: skip


def activation(cell: str, name: str) -> Callable[[Any], Any]:
    """Return a function of `torch.nn.functional` by name. For "hardsigmoid", return `_hard_sigmoid`.

    Args:
        cell: the name of the cell's class, for the message.
        name: one of `NAMES`.

    Raises:
        ValueError: the name is not in `NAMES`.
    """
    if name not in NAMES:
        raise ValueError(f"{cell}: an activation must be one of {', '.join(NAMES)}, got {name!r}")
    return _hard_sigmoid if name == "hardsigmoid" else getattr(functional, name)


def _hard_sigmoid(x: Any) -> Any:
    """Compute the hard sigmoid with the exact slope 1/6. torch's function rounds the slope to float32."""
    return torch.clamp(x / 6 + 0.5, 0, 1)
