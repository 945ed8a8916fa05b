"""Merges the outputs of two directions."""

import torch
from torch import Tensor


def merge(mode: str, outputs: list[Tensor]) -> list[Tensor]:
    """The output of a layer: one tensor (S, W), or one per direction for "none".

    Args:
        mode: "concat", "sum", "mean" or "none".
        outputs: one per direction, (S, H_out).
    """
    if len(outputs) == 1 or mode == "none":
        return outputs
    if mode == "concat":
        return [torch.cat(outputs, -1)]
    total = outputs[0] + outputs[1]
    return [total if mode == "sum" else total / 2]
