"""A cell without a recurrence, whose layer is one matrix product: that of the input with the input weights."""

from typing import Any

import torch
from torch import Tensor

from glassgate.cell import Cell, Weights
from glassgate.engines.contract import Direction


class _InputProduct(Cell):
    """A step that returns its pre-activations."""

    gates, state, recurrent = ("y",), ("h",), False

    def step(self, a: Any, s: Any) -> Any:
        return a.y


_CELL = _InputProduct()


def input_product(weight: Tensor, bias: Tensor | None) -> Direction:
    """A direction that maps x to x W^T + b.

    Args:
        weight: W, (rows, features), in floating point or int8.
        bias: b, (rows,), or None.
    """
    weights: Weights = {"weight_ih": weight} | ({"bias_ih": bias} if bias is not None else {})
    dtype = torch.float32 if weight.dtype is torch.int8 else weight.dtype
    return Direction(_CELL, weights, (weight.new_zeros(1, weight.shape[0], dtype=dtype),), False)
