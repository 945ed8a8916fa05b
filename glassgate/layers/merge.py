"""Computes the output of a layer from the outputs of its directions."""

from collections.abc import Sequence

import torch
from torch import Tensor


def merge(mode: str, outputs: list[Tensor], residual: Sequence[Tensor] = ()) -> list[Tensor]:
    """The output of a layer: one tensor (S, W), or one per direction for "none".

    Args:
        mode: "concat", "sum", "mean" or "none".
        outputs: one per direction, (S, H_out).
        residual: the inputs of the layer, as many as it has outputs. Each is added to its output if their widths are
            equal. Empty for a layer without a residual connection.
    """
    merged = _merged(mode, outputs)
    if not residual:
        return merged
    return [v + u if v.shape == u.shape else v for v, u in zip(merged, residual, strict=True)]


def _merged(mode: str, outputs: list[Tensor]) -> list[Tensor]:
    if len(outputs) == 1 or mode == "none":
        return outputs
    if mode == "concat":
        return [torch.cat(outputs, -1)]
    total = outputs[0] + outputs[1]
    return [total if mode == "sum" else total / 2]
