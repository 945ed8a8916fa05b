"""One step at a time, with no graph and no new memory: for audio, control and other work as it comes in."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glassgate.engines.choose import stepper
from glassgate.engines.contract import Direction
from glassgate.shapes import check_like, check_shape

if TYPE_CHECKING:
    from glassgate.layers.stack import Recurrent


class Stream:
    """Sequences of unknown length through a layer, from `layer.stream(batch_size)`.

    The weights are read when the stream is made; a stream of a layer in training has neither dropout nor noise. Two
    streams of one layer are independent; one stream belongs to one thread.

    Args:
        layer: a layer, or several on top of each other, in one direction.
        batch_size: N, how many sequences run side by side.

    Raises:
        ValueError: the layer is bidirectional: its second direction starts at the end; or it is being edited.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.LSTM(3, 4, num_layers=2)
        >>> x = torch.randn(5, 2, 3)
        >>> stream = layer.stream(2)
        >>> steps = torch.stack([stream.step(x_t).clone() for x_t in x])
        >>> torch.allclose(steps, layer(x)[0], atol=1e-6)
        True
    """

    @torch.no_grad()
    def __init__(self, layer: "Recurrent", batch_size: int) -> None:
        if layer.bidirectional:
            raise ValueError(
                f"{layer._name}: stream must have one direction, got bidirectional=True, whose second direction "
                "starts at the end of a sequence"
            )
        if layer._edits is not None:
            raise ValueError(f"{layer._name}: a stream has no edits, whose steps are those of whole sequences")
        self._layer, self._residual = layer, layer.residual
        weight = layer.weight_ih_l0
        self._like = weight.detach()
        self.batch_size, self._shape = batch_size, (batch_size, layer.input_size)
        self._first = layer._resting_states(weight.detach(), batch_size)
        directions = [
            Direction(layer._calm_cell, weights, first, False)
            for weights, first in zip(layer.checked_weights(), self._first, strict=True)
        ]
        self._steps = [stepper(direction) for direction in directions]

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        """Advance every sequence by one step.

        Args:
            x: (N, H_in).

        Returns:
            the output, (N, H_out); its memory is used again by later steps, so clone what is to be kept.

        Raises:
            ShapeError: x does not fit.
        """
        if x.shape != self._shape or x.dtype != self._like.dtype or x.device != self._like.device:
            check_shape("Stream", "x", x, "(N, H_in)", self._shape)
            check_like("Stream", "x", x, self._like.dtype, self._like.device, "the layer")
        for k, step in enumerate(self._steps):
            out = step(x)
            x = out + x if self._residual and k > 0 and out.shape == x.shape else out
        return x

    @property
    def states(self) -> list[Sequence[Tensor]]:
        """Each layer's states, (N, H_out or H_cell), as they are now."""
        return [step.states for step in self._steps]

    @torch.no_grad()
    def reset(self, rows: Tensor | Sequence[int] | None = None) -> None:
        """Let sequences start again.

        Args:
            rows: (N,) bool, or the numbers of the rows; all of them if not given.
        """
        index = slice(None) if rows is None else torch.as_tensor(rows, device=self._like.device)
        for step, first in zip(self._steps, self._first, strict=True):
            for state, value in zip(step.states, first, strict=True):
                state[index] = value[index]
