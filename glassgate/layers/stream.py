"""One step at a time, with no graph and no new memory: for audio, control and other data that arrive step by step."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glassgate.engines.backend import Native
from glassgate.shapes import check_like, check_shape, check_size

if TYPE_CHECKING:
    from glassgate.layers.frozen import FrozenLayer


MOST_BLOCKS = 64
"""Lengths of blocks that a stream keeps native code for."""


class Stream:
    """Sequences of unknown length through a layer, from `layer.stream(batch_size)` or `session.stream(batch_size)`.

    The weights are read when the stream is made. Dropout and noise are off, also for a layer in training mode. Streams
    of one layer are independent of each other. One stream must not be used by two threads at once.

    Args:
        layer: a layer, or several on top of each other, in one direction.
        batch_size: N, how many sequences run side by side.

    Raises:
        ValueError: the layer is bidirectional: its second direction starts at the end.

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
    def __init__(self, layer: "FrozenLayer", batch_size: int) -> None:
        spec = layer.spec
        if spec.num_directions > 1:
            raise ValueError(
                f"{spec.name}: stream must have one direction, got bidirectional=True, whose second direction "
                "starts at the end of a sequence"
            )
        check_size("stream", "batch_size", batch_size)
        self.batch_size, self._shape = batch_size, (batch_size, spec.input_size)
        self._dtype, self._computed_in = spec.dtype, layer.computed_in
        self._device = layer.weights[0]["weight_ih"].device
        self._step, self._first = layer.stepper(batch_size)
        self._call: Callable[[int], None] | None = None
        self._one = self._step.native(1) if spec.dtype is layer.computed_in else None
        if self._one is not None:
            self._call, self._output = self._one.call, self._one.output[0]
        self._blocks: dict[torch.Size, Native] = {}

    def step(self, x: Tensor) -> Tensor:
        """Advance every sequence by one step.

        Args:
            x: (N, H_in).

        Returns:
            the output, (N, H_out). Later steps reuse its memory: clone it to keep it.

        Raises:
            ShapeError: x does not fit.
        """
        call = self._call
        if call is None or x.shape != self._shape or x.dtype is not self._dtype or not (x.is_cpu and x.is_contiguous()):
            return self._other(x)
        call(x.data_ptr())
        return self._output

    def run(self, x: Tensor) -> Tensor:
        """Advance every sequence by a block of steps, such as the frames that an audio callback receives.

        Args:
            x: (L, N, H_in).

        Returns:
            the outputs, (L, N, H_out). Later blocks of the same length reuse their memory: clone it to keep it.

        Raises:
            ShapeError: x does not fit.
        """
        block = self._blocks.get(x.shape)
        if block is None or x.dtype is not self._dtype or not (x.is_cpu and x.is_contiguous()):
            return self._other_block(x)
        block.call(x.data_ptr())
        return block.output

    @torch.no_grad()
    def _other_block(self, x: Tensor) -> Tensor:
        """The first block of its length, one of another layout, or without native code."""
        L = len(x) if x.dim() else 0
        check_shape("Stream", "x", x, "(L, N, H_in)", (max(L, 1), *self._shape))
        check_like("Stream", "x", x, self._dtype, self._device, "the layer")
        if self._one is None:
            return torch.stack([self.step(x_t).clone() for x_t in x])
        block = self._blocks.get(x.shape)
        if block is None:
            block = self._step.native(L)
            assert block is not None, "a stream with native code for one step has it for blocks"
            if len(self._blocks) >= MOST_BLOCKS:
                self._blocks.clear()
            self._blocks[x.shape] = block
        x = x.contiguous()
        block.call(x.data_ptr())
        return block.output

    @torch.no_grad()
    def _other(self, x: Tensor) -> Tensor:
        """A step from an input of another type or layout, or without native code."""
        check_shape("Stream", "x", x, "(N, H_in)", self._shape)
        check_like("Stream", "x", x, self._dtype, self._device, "the layer")
        return self._step(x.to(self._computed_in).contiguous()).to(self._dtype)

    @property
    def states(self) -> list[Sequence[Tensor]]:
        """Each layer's states after the last step, (N, H_out or H_cell)."""
        return [*self._step.states]

    @torch.no_grad()
    def reset(self, rows: Tensor | Sequence[int] | None = None) -> None:
        """Returns sequences to their initial state.

        Args:
            rows: (N,) bool, or the numbers of the rows; all of them if not given.
        """
        index = slice(None) if rows is None else torch.as_tensor(rows, device=self._device)
        for states, first in zip(self._step.states, self._first, strict=True):
            for state, value in zip(states, first, strict=True):
                state[index] = value[index]
