"""How two directions become one output."""

import torch
from torch import Tensor


def merge(how: str, outputs: list[Tensor]) -> list[Tensor]:
    """What a layer hands on: one tensor (S, W), or one per direction where they never meet.

    Args:
        how: "concat", "sum", "mean" or "none".
        outputs: one per direction, (S, H_out).
    """
    if len(outputs) == 1 or how == "none":
        return outputs
    if how == "concat":
        return [torch.cat(outputs, -1)]
    total = outputs[0] + outputs[1]
    return [total if how == "sum" else total / 2]
