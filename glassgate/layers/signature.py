"""The arguments of a call that prepared calls can run, and the signature of these arguments."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from glassgate.engines.backend import PackedLengths
from glassgate.engines.contract import PLAIN_TYPES

_metadata = attrgetter("shape", "dtype", "is_cpu", "layout")


class Arguments(NamedTuple):
    """The arguments of a call. The states are given both as tuples and as the user passed them."""

    input: Any
    """A tensor or a `PackedSequence`."""
    hx: Any
    restart: Any
    data: Tensor
    """The input, or the rows of a packed input."""
    states: tuple[Tensor, ...]
    """The tensors in `hx`; empty if it is None."""
    restart_states: tuple[Tensor, ...]
    """The tensors in `restart`; empty if it is None."""
    mask: tuple[Tensor, ...]
    """The mask of resets; empty without resets."""
    lengths: Sequence[int] | PackedLengths | None
    """The lengths of the sequences; None if they are equal."""
    key: tuple[Any, ...]
    """The signature of the arguments."""

    def are_readable(self, *dtypes: torch.dtype) -> bool:
        """Whether all tensors are dense, on a CPU or one GPU, in one of these dtypes, and `restart` has `resets`."""
        tensors, device = (self.data, *self.states, *self.restart_states), self.data.device
        return (
            {*dtypes}.issuperset([v.dtype for v in tensors])
            and device.type in ("cpu", "cuda")
            and all([v.device == device and v.layout is torch.strided for v in (*tensors, *self.mask)])
            and all([v.dtype is torch.bool for v in self.mask])
            and (bool(self.mask) or not self.restart_states)
        )


def read_arguments(
    input: Any, hx: Any, lengths: Any, resets: Any, restart: Any, batch_first: bool
) -> tuple[Any, ...] | None:
    """Return the attributes of `Arguments` from `data` on. None if the general path must read or reject the arguments.

    Args:
        input, hx, lengths, resets, restart: as in `Recurrent.forward`.
        batch_first: as in `Recurrent`.
    """
    is_packed = type(input) is PackedSequence
    data = input.data if is_packed else input
    states: tuple[Any, ...] = ()
    restart_states: tuple[Any, ...] = ()
    mask: tuple[Any, ...] = ()
    form: Any = type(hx)
    tensors: tuple[Any, ...] = (data,)
    if hx is not None:
        states = hx if form is tuple else (hx,)
        tensors = (data, *states)
    if resets is not None or restart is not None:
        mask = () if resets is None else (resets,)
        restart_states = () if restart is None else restart if type(restart) is tuple else (restart,)
        tensors, form = (*tensors, *mask, *restart_states), (form, len(states), len(mask), type(restart))
    for v in tensors:  # torch negates lazily negated tensors when it reads them, and kernels do not
        if type(v) not in PLAIN_TYPES or v.is_neg():
            return None
    try:
        key = (form, *map(_metadata, tensors))
        if not data.is_cpu:
            device = data.device
            key = (*key, device, torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type))
        if not is_packed and lengths is None:
            return data, states, restart_states, mask, None, key
        read_lengths = _packed_lengths(input, lengths) if is_packed else _padded_lengths(lengths, input, batch_first)
    except RuntimeError:  # a nested tensor has no shape
        return None
    if read_lengths is None:
        return None
    if isinstance(read_lengths, PackedLengths):
        # Only the order of magnitude of the number of rows matters: very different sizes use different kernels.
        key = (data.shape[1:], len(data).bit_length(), len(read_lengths.order), *_metadata(data)[1:], form, *key[2:])
    return data, states, restart_states, mask, read_lengths or None, (*key, bool(read_lengths))


def _padded_lengths(lengths: Any, input: Tensor, batch_first: bool) -> list[int] | None:
    """Return the lengths of a batch, or an empty list if all are L. None if the general path must read them."""
    if type(lengths) is Tensor and lengths.dtype is torch.int64 and lengths.dim() == 1 and lengths.is_cpu:
        lengths = lengths.tolist()
    if type(lengths) is not list or input.dim() != 3 or not {int}.issuperset(map(type, lengths)):
        return None
    N, L = input.shape[:2] if batch_first else input.shape[1::-1]
    if len(lengths) != N or N == 0:
        return None
    shortest, longest = min(lengths), max(lengths)
    return None if shortest < 0 or longest > L else [] if shortest == L else lengths


def _packed_lengths(input: PackedSequence, lengths: object) -> PackedLengths | None:
    """Return the lengths of a `PackedSequence`. None if the general path must read or reject them."""
    data, batch_sizes, order, _ = input
    if lengths is not None:
        return None
    for v in (batch_sizes,) if order is None else (batch_sizes, order):
        if type(v) is not Tensor or v.dtype is not torch.int64 or v.dim() != 1 or not v.is_cpu:
            return None
    sizes = batch_sizes.tolist()
    if data.dim() != 2 or not sizes or sizes[-1] < 1 or sum(sizes) != len(data) or sizes != sorted(sizes, reverse=True):
        return None
    ranks = [*range(sizes[0])]
    if order is None:
        return PackedLengths(sizes, ranks)
    rows = order.tolist()
    return PackedLengths(sizes, rows) if sorted(rows) == ranks else None
