"""Converts a user's input (unbatched, batch-first, packed, with lengths) to the flat rows of engines, and back."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from glassgate.engines.contract import Steps, is_plain
from glassgate.engines.memory import in_memory, move_to_device
from glassgate.engines.torch_names import assert_later
from glassgate.shapes import ArgumentTypeError, ShapeError, check_dense, check_like, check_shape

_is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # torch 2.6 does not have this function


class Layout(NamedTuple):
    """The relation between a user's input and the flat rows of `Steps`, which engines read.

    A flat row is one of the S rows of `Steps.data`: a step of a sequence or, after all steps, padding. The index of a
    sequence is its position in the user's batch. Its rank is its position in `Steps`, where the longest is first.
    """

    operation: str
    """The name of the layer's class, for messages."""
    length: int
    """L, the number of steps."""
    rows: int
    """N, the number of sequences."""
    batch_first: bool = False
    """Whether the input is (N, L, H_in)."""
    unbatched: bool = False
    """Whether the input is (L, H_in)."""
    packed: PackedSequence | None = None
    """The input, if it is a `PackedSequence`."""
    order: Tensor | None = None
    """(N,): the index of the sequence at each rank; None if ranks equal indices."""
    places: Tensor | None = None
    """(L * N,): the position of each flat row in the padded, time-major batch; None if the order is the same."""

    def flatten(self, input: Tensor) -> Tensor:
        """Convert a tensor in the layout of the user's input, such as (L, N, *), to flat rows (S, *)."""
        if self.unbatched:
            input = input.unsqueeze(1)
        elif self.batch_first:
            input = input.transpose(0, 1)
        flat = input.reshape(self.length * self.rows, *input.shape[2:])
        return flat if self.places is None else flat.index_select(0, self.places)

    def restore(self, flat: Tensor) -> Tensor | PackedSequence:
        """Convert flat rows (S, *) to the layout of the user's input."""
        if self.packed is not None:
            return PackedSequence(flat, *self.packed[1:])
        padded = self.by_step(flat)
        if self.unbatched:
            return padded.squeeze(1)
        return padded.transpose(0, 1) if self.batch_first else padded

    def by_step(self, flat: Tensor) -> Tensor:
        """Convert flat rows (S, *) to (L, N, *) in the order of the user's batch, zero where padded."""
        if self.packed is not None:
            return pad_packed_sequence(PackedSequence(flat, *self.packed[1:]))[0]
        if self.places is not None:
            flat = torch.zeros_like(flat).index_copy(0, self.places, flat)
        return flat.view(self.length, self.rows, *flat.shape[1:])

    def to_flat(self, values: Tensor) -> Tensor:
        """Convert values (L, N, H) in the order of the user's batch to flat rows (S, H): the inverse of `by_step`."""
        if self.packed is not None:
            is_step = torch.arange(self.rows) < self.packed.batch_sizes[:, None]
            indices = move_to_device(is_step.flatten().nonzero().squeeze(1), values.device)
            return self.to_ranks(values).flatten(0, 1).index_select(0, indices)
        flat = values.reshape(self.length * self.rows, values.shape[2])
        return flat if self.places is None else flat.index_select(0, self.places)

    def to_ranks(self, state: Tensor) -> Tensor:
        """Reorder states (..., N, H) from the order of the user's batch to ranks."""
        return state if self.order is None else state.index_select(-2, self.order)

    def from_ranks(self, state: Tensor) -> Tensor:
        """Reorder states (..., N, H) from ranks to the order of the user's batch."""
        return state if self.order is None else torch.zeros_like(state).index_copy(-2, self.order, state)


def arrange(
    operation: str,
    input: Tensor | PackedSequence,
    input_size: int,
    batch_first: bool = False,
    lengths: Tensor | Sequence[int] | None = None,
    resets: Tensor | None = None,
) -> tuple[Steps, Layout]:
    """Check the input of a layer and convert it to flat rows.

    Args:
        operation: the name of the layer's class, for messages.
        input, input_size, batch_first, lengths, resets: as in `Recurrent`.

    Returns:
        the flat rows, and their layout.

    Raises:
        ShapeError: a shape, dtype, device or length does not fit.
        TypeError: an argument has the wrong type.
        ValueError: lengths are given with a `PackedSequence`.
    """
    batch_sizes: Tensor | None
    data = input.data if isinstance(input, PackedSequence) else input
    if not isinstance(data, Tensor):
        got = f"{'a PackedSequence of ' * (data is not input)}{type(data).__name__}"
        raise ArgumentTypeError(f"{operation}: input must be a tensor or a PackedSequence, got {got}")
    check_dense(operation, "input", data)
    (data,) = in_memory([data])
    if isinstance(input, PackedSequence):
        if data.dim() != 2:
            raise ShapeError(
                f"{operation}: input must have packed data of shape (S, H_in), got {data.dim()}D {tuple(data.shape)}"
            )
        layout, batch_sizes = _packed_layout(operation, input, lengths)
    else:
        layout, batch_sizes = _padded_layout(operation, input, batch_first, lengths)
        data = layout.flatten(data)
    if data.shape[1] != input_size:
        raise ShapeError(f"{operation}: input must have H_in = input_size = {input_size} features, got {data.shape[1]}")
    if data.shape[0] == 0 and layout.rows > 0:
        raise ShapeError(f"{operation}: input must have at least one step, got {_shape(input)}")
    return Steps(data, batch_sizes, None if resets is None else _flatten_resets(layout, resets, data)), layout


def _shape(input: Tensor | PackedSequence) -> tuple[int, ...]:
    """Return the shape of an input, for messages."""
    return tuple(input.data.shape if isinstance(input, PackedSequence) else input.shape)


def _packed_layout(operation: str, input: PackedSequence, lengths: object) -> tuple[Layout, Tensor]:
    """Return the layout and the batch sizes of a packed input."""
    if lengths is not None:
        raise ValueError(f"{operation}: lengths must be left out with a PackedSequence, which has its own")
    sizes = input.batch_sizes
    if _is_exporting():
        raise ShapeError(
            f"{operation}: torch.export does not support a PackedSequence, because its sizes depend on the values of a "
            "tensor; pass the padded input with lengths=, which export supports: layer(input, lengths=lengths)"
        )
    if not isinstance(sizes, Tensor):
        raise ArgumentTypeError(
            f"{operation}: batch_sizes of a PackedSequence must be a tensor, got {type(sizes).__name__}"
        )
    if sizes.device.type != "cpu" or sizes.dtype != torch.int64 or sizes.dim() != 1:
        raise ShapeError(f"{operation}: batch_sizes of a PackedSequence must be (L,) int64 on the CPU, got {sizes}")
    rows = int(sizes[0]) if len(sizes) else 0
    layout = Layout(operation, len(sizes), rows, packed=input, order=input.sorted_indices)
    if torch.compiler.is_compiling():
        return layout, sizes
    counts, S = sizes.numpy(), input.data.shape[0]
    if counts.sum() != S or (counts[1:] > counts[:-1]).any() or (counts < 1).any():
        raise ShapeError(
            f"{operation}: batch_sizes of a PackedSequence must add up to its {S} rows, be at least 1 and "
            "never increase, "
            f"got {sizes.tolist()}"
        )
    return layout._replace(order=None) if rows == 1 else layout, sizes


def _padded_layout(
    operation: str, input: Tensor, batch_first: bool, lengths: Tensor | Sequence[int] | None
) -> tuple[Layout, Tensor | None]:
    """Return the layout and the batch sizes of a padded or unbatched input. The sizes are None if all lengths are L."""
    if input.dim() not in (2, 3):
        letters = "(N, L, H_in)" if batch_first else "(L, N, H_in)"
        raise ShapeError(
            f"{operation}: input must be 2D (L, H_in) or 3D {letters}, got {input.dim()}D {tuple(input.shape)}"
        )
    unbatched = input.dim() == 2
    L, N = (input.shape[0], 1) if unbatched else (input.shape[:2][::-1] if batch_first else input.shape[:2])
    layout = Layout(operation, L, N, batch_first and not unbatched, unbatched)
    if lengths is None:
        return layout, None
    if not isinstance(lengths, Tensor):
        lengths = _lengths_as_tensor(operation, lengths)
    if lengths.dtype is torch.bool or lengths.is_floating_point() or lengths.is_complex():
        raise TypeError(f"{operation}: lengths must be integers, got {lengths.dtype}")
    check_shape(operation, "lengths", lengths.view(-1) if unbatched and lengths.dim() == 0 else lengths, "(N,)", (N,))
    if lengths.is_meta:
        raise ShapeError(f"{operation}: lengths must have values, got a tensor on the device meta")
    lengths = lengths.view(-1).to("cpu", torch.int64)
    if torch.onnx.is_in_onnx_export():
        pass  # ONNX has no assertions
    elif torch.compiler.is_compiling():
        is_valid = ((lengths >= 0) & (lengths <= L)).all()
        assert_later(is_valid, f"{operation}: lengths must be between 0 and L, the steps of the input")
    else:
        if bool((lengths < 0).any()) or bool((lengths > L).any()):
            raise ShapeError(f"{operation}: lengths must be between 0 and L = {L}, got {lengths.tolist()}")
        if bool((lengths == L).all()):
            return layout, None
    descending, order = _sort_descending(lengths)
    is_step = torch.arange(L, device="cpu")[:, None] < descending  # (L, N) by rank; false at padded positions
    flat = _sort_descending(is_step.view(-1).to(torch.uint8))[1]
    step_start = flat // N * N  # torch's exporter to ONNX does not support `flat % N`
    places = step_start + order[flat - step_start]
    order, places = (move_to_device(v, input.device) for v in (order, places))
    return layout._replace(order=order, places=places), is_step.sum(1)


def _lengths_as_tensor(operation: str, lengths: Any) -> Tensor:
    """Convert lengths that are not a tensor, such as a list of integers or an array."""
    empty = isinstance(lengths, Sequence) and not lengths
    try:
        return torch.as_tensor(lengths, dtype=torch.int64 if empty else None, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{operation}: lengths must be (N,) integers, such as [5, 2], got {lengths!r}") from None


def _sort_descending(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values in descending order and their indices. The sort is stable."""
    if not torch.onnx.is_in_onnx_export():
        return values.sort(descending=True, stable=True)
    # torch's exporter to ONNX supports only unstable sorts. Distinct keys make the result unique.
    count = values.shape[0]
    index = (values.to(torch.int64) * count - torch.arange(count)).sort(descending=True)[1]
    return values.index_select(0, index), index


def _flatten_resets(layout: Layout, resets: Tensor, data: Tensor) -> Tensor:
    """Check the mask of resets, which has the layout of the input without features, and convert it to flat rows."""
    if isinstance(resets, PackedSequence):
        resets = resets.data
    if not isinstance(resets, Tensor) or resets.is_complex():
        raise TypeError(f"{layout.operation}: resets must be a mask (bool or 0 and 1), got {type(resets).__name__}")
    L, N = layout.length, layout.rows
    expected: tuple[int, ...]
    if layout.packed is not None:
        letters, expected = "(S,)", (data.shape[0],)
    elif layout.unbatched:
        letters, expected = "(L,)", (L,)
    else:
        letters, expected = ("(N, L)", (N, L)) if layout.batch_first else ("(L, N)", (L, N))
    check_shape(layout.operation, "resets", resets, letters, expected)
    if resets.device != data.device:
        check_like(layout.operation, "resets", resets, resets.dtype, data.device, "input")
    in_memory([resets])
    if resets.dtype != torch.bool:
        others = resets[(resets != 0) & (resets != 1)] if is_plain(resets) else None
        if others is not None and len(others):
            raise ValueError(
                f"{layout.operation}: resets must be a mask (bool or 0 and 1), got the value {others[0].item()}; "
                "compare it with a threshold, such as resets > 0.5"
            )
        resets = resets != 0
    return resets if layout.packed is not None else layout.flatten(resets)
