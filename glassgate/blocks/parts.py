"""Parts of blocks: recurrences that read their input directly, and a convolution over the past."""

from collections.abc import Callable
from math import prod
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassgate.cells.direct import DirectCell
from glassgate.layers.stack import Recurrent


class Recurrence(Recurrent):
    """The layer of a `DirectCell`. It adds nothing to a state dict, and computes at least in float32."""

    def __init__(self, cell: DirectCell) -> None:
        sizes = [prod(getattr(cell, str(axis)) for axis in axes) for axes in cell.inputs.values()]
        super().__init__(cell, sum(sizes), cell.heads * cell.value_size, bias=False, batch_first=True)
        self.requires_grad_(False)  # the weights of no gates are empty, and have no gradient

    def run(self, state: tuple[Tensor, ...] | None, **inputs: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Run the cell on its inputs by name, each (N, L, *axes).

        Returns:
            the output (N, L, heads, value_size) and the final states.
        """
        x = torch.cat([inputs[name].flatten(2) for name in self.cell.inputs], -1)
        output, final = self(x.to(self.weight_ih_l0.dtype), state)
        return output.to(x.dtype).unflatten(-1, (self.cell.heads, -1)), final

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        for weight in self.parameters():
            if weight.dtype.itemsize < 4:
                weight.data = weight.data.float()
        return self

    def _save_to_state_dict(self, *_: Any) -> None:
        """Write nothing."""

    def _load_from_state_dict(self, *_: Any) -> None:
        """Read nothing."""


class CausalConvolution(nn.Conv1d):
    """A convolution of each channel over the last `kernel_size` steps."""

    def __init__(self, channels: int, kernel_size: int, bias: bool) -> None:
        super().__init__(channels, channels, kernel_size, groups=channels, bias=bias)

    def convolve(self, x: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Convolve (N, L, C).

        Args:
            x: the input (N, L, C).
            past: the last kernel_size - 1 inputs before it, (N, kernel_size - 1, C); None for zeros.

        Returns:
            the output (N, L, C), and the last kernel_size - 1 inputs.
        """
        steps = self.kernel_size[0] - 1
        if past is None:
            past = x.new_zeros(len(x), steps, x.shape[-1])
        x = torch.cat([past, x], 1)
        return self(x.mT).mT, x[:, x.shape[1] - steps :]
