"""Merges the outputs of the directions of a layer."""

from collections.abc import Sequence

import torch
from torch import Tensor


def merge(mode: str, outputs: list[Tensor], residual: Sequence[Tensor] = ()) -> list[Tensor]:
    """Return the output of a layer: a list of one tensor, or of one tensor per direction for "none".

    Args:
        mode: "concat", "sum", "mean" or "none".
        outputs: one per direction, (..., H_out).
        residual: the tensors that a residual connection adds, one for each returned tensor. A tensor is only added to
            an output of the same shape. Empty for a layer without a residual connection.
    """
    if len(outputs) == 1 or mode == "none":
        merged = outputs
    elif mode == "concat":
        merged = [torch.cat(outputs, -1)]
    else:
        total = outputs[0] + outputs[1]
        merged = [total if mode == "sum" else total / 2]
    if not residual:
        return merged
    return [out + x if out.shape == x.shape else out for out, x in zip(merged, residual, strict=True)]
