"""How two directions become one output."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassgate.engines.call import is_plain


def merge(how: str, outputs: list[Tensor]) -> list[Tensor]:
    """What a layer hands on: one tensor (S, W), or one a direction where they never meet.

    Args:
        how: "concat", "sum", "mean" or "none".
        outputs: one a direction, (S, H_out).
    """
    if len(outputs) == 1 or how == "none":
        return outputs
    if how == "concat":
        plain = all([is_plain(v) and v.dtype in (torch.float32, torch.float64) for v in outputs])
        return [_SideBySide.apply(*outputs) if plain else torch.cat(outputs, -1)]
    total = outputs[0] + outputs[1]
    return [total if how == "sum" else total / 2]


class _SideBySide(torch.autograd.Function):
    """`torch.cat` by NumPy: torch would wake its OpenMP threads, which then spin where the kernels' own are to run."""

    @staticmethod
    def forward(ctx: Any, *outputs: Tensor) -> Tensor:
        ctx.widths = [v.shape[1] for v in outputs]
        return torch.from_numpy(np.concatenate([v.numpy(force=True) for v in outputs], 1))

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor, ...]:
        return d[0].split(ctx.widths, 1)
