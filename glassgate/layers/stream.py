"""`Stream`: runs a layer one step at a time, for audio, control and other real-time data."""

from collections.abc import Callable, Sequence, Sized
from typing import NoReturn, Protocol

import torch
from torch import Tensor

from glassgate.engines.contract import is_intercepted
from glassgate.engines.fixed_weights import NativeSteps, Stepper
from glassgate.engines.memory import in_memory, move_to_device, readable
from glassgate.layers.spec import Spec
from glassgate.layers.states import States
from glassgate.shapes import check_like, check_shape, check_size

_MAX_BLOCKS = 64
"""The maximum number of block lengths for which a stream keeps compiled calls."""


class PackedLayer(Protocol):
    """A layer with packed weights. `stepper` returns a `Stepper`, which advances it by one step, and initial states."""

    spec: Spec

    def stepper(self, batch_size: int) -> tuple[Stepper, States]: ...


class Stream:
    """Runs a layer on sequences of unknown length, one step or one block of steps at a time.

    `layer.stream(batch_size)` and `session.stream(batch_size)` create a stream. The stream keeps the states of all
    sequences between calls. Repeated calls allocate no memory.

    The weights are copied when the stream is created, and by `refresh`. Dropout and noise are off, also for a layer in
    training mode. Streams of one layer are independent of each other. Two threads must not use one stream at the same
    time.

    Args:
        freeze: returns a copy of the layer with packed weights.
        batch_size: N, the number of sequences.

    Raises:
        ValueError: the layer is bidirectional. Its second direction would start at the end of a sequence.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.LSTM(3, 4, num_layers=2)
        >>> x = torch.randn(5, 2, 3)
        >>> stream = layer.stream(2)
        >>> steps = torch.stack([stream.step(x_t).clone() for x_t in x])
        >>> torch.allclose(steps, layer(x)[0], atol=1e-6)
        True
    """

    def __init__(self, freeze: Callable[[], PackedLayer], batch_size: int) -> None:
        self._freeze, self.batch_size = freeze, batch_size
        self._pack()

    @torch.no_grad()
    def _pack(self) -> None:
        """Start in the initial states, with the present weights."""
        layer, batch_size = self._freeze(), self.batch_size
        spec = layer.spec
        if spec.num_directions > 1:
            raise ValueError(
                f"{spec.name}: stream must have one direction, got bidirectional=True, whose second direction "
                "starts at the end of a sequence"
            )
        check_size("stream", "batch_size", batch_size)
        self._shape = (batch_size, spec.input_size)
        self._step, self._initial = layer.stepper(batch_size)
        first_state = self._initial[0][0]
        self._dtype, self._compute_dtype, self._device = spec.dtype, first_state.dtype, first_state.device
        self._call: Callable[[int], None] | None = None
        self._one_step = self._step.native(1) if self._dtype is self._compute_dtype else None
        if self._one_step is not None:
            self._call, self._output = self._one_step.call, self._one_step.output[0]
        self._blocks: dict[torch.Size, NativeSteps] = {}

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Stream: a stream cannot be copied or pickled; make another one, and copy the tensors of stream.states "
            "into it"
        )

    def step(self, x: Tensor) -> Tensor:
        """Advance every sequence by one step.

        Args:
            x: (N, H_in).

        Returns:
            the output, (N, H_out). Later steps overwrite it: clone it to keep it.

        Raises:
            ShapeError: the shape of x does not match.
        """
        call = self._call
        try:
            if call and x.shape == self._shape and x.dtype is self._dtype and x.is_cpu and x.is_contiguous():
                call(x.data_ptr())
                return self._output
        except (AttributeError, RuntimeError):  # x is not a tensor, is sparse or has no memory
            pass
        return self._general_step(x)

    def run(self, x: Tensor) -> Tensor:
        """Advance every sequence by a block of steps, such as the frames that an audio callback receives.

        Args:
            x: (L, N, H_in).

        Returns:
            the outputs, (L, N, H_out). Later blocks of this length overwrite them: clone them to keep them.

        Raises:
            ShapeError: the shape of x does not match.
        """
        try:
            block = self._blocks.get(x.shape)
            if block and x.dtype is self._dtype and x.is_cpu and x.is_contiguous():
                block.call(x.data_ptr())
                return block.output
        except (AttributeError, RuntimeError, TypeError):  # x is not a tensor, is sparse or has no memory
            pass
        return self._general_block(x)

    @torch.no_grad()
    def _general_block(self, x: Tensor) -> Tensor:
        """Run a block for which `run` has no compiled call: a new length, a strided tensor, or no native code."""
        L = len(x) if isinstance(x, Tensor) and not x.is_nested and x.dim() else 0
        x = self._readable(x, "(L, N, H_in)", (max(L, 1), *self._shape))
        if self._one_step is None:
            return torch.stack([self.step(x_t).clone() for x_t in x])
        block = self._blocks.get(x.shape)
        if block is None:
            block = self._step.native(L)
            assert block is not None, "a stream with native code for one step has it for blocks"
            if len(self._blocks) >= _MAX_BLOCKS:
                self._blocks.clear()
            self._blocks[x.shape] = block
        (x,) = readable([x.contiguous()])
        block.run(x.data_ptr())
        return block.output

    @torch.no_grad()
    def _general_step(self, x: Tensor) -> Tensor:
        """Run a step for which `step` has no compiled call: a strided tensor, another dtype, or no native code."""
        x = self._readable(x, "(N, H_in)", self._shape)
        return self._step(x.to(self._compute_dtype).contiguous()).to(self._dtype)

    def _readable(self, x: Tensor, letters: str, shape: tuple[int, ...]) -> Tensor:
        """Check an input, and return it as a tensor that kernels can read."""
        check_shape("Stream", "x", x, letters, shape)
        check_like("Stream", "x", x, self._dtype, self._device, "the layer")
        if self._one_step is not None and is_intercepted():
            raise RuntimeError("Stream: a stream cannot be traced, compiled or transformed; call the layer itself")
        (x,) = in_memory([x])
        return x

    @property
    def states(self) -> list[Sequence[Tensor]]:
        """The current states of each layer, (N, H_out or H_cell). Writing to them changes the states of the stream."""
        return [*self._step.states]

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the present weights of the layer or of the session, for example after an update. The states are kept."""
        previous = self.states
        self._pack()
        for states, values in zip(self.states, previous, strict=True):
            for state, value in zip(states, values, strict=True):
                state.copy_(value)

    @torch.no_grad()
    def reset(self, rows: Tensor | Sequence[int] | None = None) -> None:
        """Reset sequences to their initial states.

        Args:
            rows: a mask (N,), or the indices of the sequences. The default is all sequences.

        Raises:
            ShapeError: the mask does not have N elements.
            TypeError: `rows` is neither a mask nor indices.
            IndexError: an index is outside the batch. Indices on a GPU are not checked, to avoid waiting for the GPU.
        """
        index = None if rows is None else self._row_index(rows)
        for states, initial in zip(self._step.states, self._initial, strict=True):
            for state, value in zip(states, initial, strict=True):
                if index is None:
                    state.copy_(value)
                elif index.dtype is torch.bool:  # `state[index]` would wait for a GPU, which counts the selected rows
                    state.copy_(torch.where(index[:, None], value, state))
                else:
                    state[index] = value[index]

    def _row_index(self, rows: Tensor | Sequence[int]) -> Tensor:
        """Check `rows` and convert it to a tensor on the device of the layer."""
        N = self.batch_size
        if isinstance(rows, str) or not isinstance(rows, Sized):
            raise TypeError(f"Stream.reset: rows must be a mask (N,) or a list of indices such as [0], got {rows!r}")
        index = rows if isinstance(rows, Tensor) else torch.tensor(rows, dtype=None if len(rows) else torch.int64)
        if index.dtype is torch.bool:
            check_shape("Stream.reset", "rows", index, "(N,)", (N,))
        elif index.is_floating_point() or index.is_complex():
            raise TypeError(
                f"Stream.reset: rows must be bool or integers, got {index.dtype}; for a mask, pass rows.bool()"
            )
        elif index.is_cpu and bool(((index < -N) | (index >= N)).any()):
            raise IndexError(f"Stream.reset: rows must be indices from {-N} to {N - 1}, got {index.tolist()}")
        return move_to_device(index, self._device)
