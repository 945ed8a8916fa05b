"""The lengths of the sequences of a prepared call; see `prepared_calls.py`."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from glassgate.engines.backend import PackedLengths


def padded_lengths(lengths: Any, input: Tensor, batch_first: bool) -> list[int] | None:
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


def packed_lengths(input: PackedSequence) -> PackedLengths | None:
    """Return the lengths of a `PackedSequence`. None if the general path must read or reject them."""
    data, batch_sizes, order, _ = input
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
