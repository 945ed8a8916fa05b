"""Encoded sequences, and batches of their pieces as padded tensors.

A unit of a sequence is a token of a text or a step of a series.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.data.batching import Batches, Lengths, Piece
from glassgate.tasks.data.corpus import Corpus

Encoded = Mapping[str, np.ndarray]
Batch = dict[str, Tensor]
Row = TypeVar("Row")

# The fields that the CPU reads.
_ON_CPU = ("lengths", "characters", "continues", "idle", "whole_shape", "seed")


@dataclass(frozen=True, slots=True)
class Shard:
    """The rows of each batch that belong to one of `size` processes: every `size`-th row, starting with row `rank`.

    A stream, which is the same row of every batch, therefore stays in one process.

    Example:
        >>> Shard(1, 2).of(["a", "b", "c", "d", "e"])
        ['b', 'd']
    """

    rank: int = 0
    size: int = 1

    def of(self, rows: Sequence[Row]) -> list[Row]:
        """Return this process's rows of a batch."""
        return list(rows[self.rank :: self.size])

    def of_streams(self, states: Tensor) -> Tensor:
        """Select this process's streams from the states of all streams, `(layers, N, H)`."""
        return states[:, self.rank :: self.size].contiguous()


ALL_ROWS = Shard()


def interleave_streams(shards: Sequence[Tensor]) -> Tensor:
    """Combine the states of all shards, `(layers, N, H)`, into states in the row order of the whole batch."""
    joined = shards[0].new_empty(len(shards[0]), sum(each.shape[1] for each in shards), shards[0].shape[2])
    for rank, states in enumerate(shards):
        joined[:, rank :: len(shards)] = states
    return joined


def sample(encoded: Sequence[Encoded], max_units: int, seed: int) -> list[Encoded]:
    """Draw random sequences with `max_units` units in total; the last one is cut, unless its fields differ in length.

    Example:
        >>> drawn = sample([{"units": np.arange(9)}, {"units": np.arange(9)}], max_units=12, seed=1)
        >>> [len(fields["units"]) for fields in drawn]
        [9, 3]
    """
    drawn: list[Encoded] = []
    for index in np.random.default_rng(seed).permutation(len(encoded)):
        if max_units <= 0:
            break
        drawn.append(_cut(encoded, Piece(int(index), 0, max_units)))
        max_units -= _count_units(drawn[-1])
    return drawn


def collate(encoded: Sequence[Encoded], pieces: Sequence[Piece], padding: Mapping[str, int]) -> Batch:
    """Cut the pieces out of their sequences, and pad each field to one tensor, `(N, L, ...)` or `(N,)`.

    A field has a value per unit, `(L, ...)`, or one value, `()`. A sequence whose fields have different lengths, such
    as source and target, is never cut. The batch also has `lengths`, the length of each piece, and `continues`, whether
    it continues the same row of the previous batch, both `(N,)`.
    """
    rows = [_cut(encoded, piece) for piece in pieces]
    batch = {name: _pad([row[name] for row in rows], fill) for name, fill in padding.items() if name in rows[0]}
    batch["lengths"] = torch.tensor([len(piece) for piece in pieces])
    batch["continues"] = torch.tensor([piece.continues for piece in pieces])
    return batch


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Move a batch to a device, except the fields that the CPU reads.

    Every layer reads `lengths` on the CPU. If they were on a GPU, the call would wait for the GPU.
    """
    return {name: tensor if name in _ON_CPU else move(tensor, device) for name, tensor in batch.items()}


def move(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device. A copy from the CPU to a GPU is asynchronous."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def restore_random_state(device: torch.device) -> AbstractContextManager[None]:
    """Return a context that restores the random states of the CPU and of this device at its end."""
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


def is_idle(batch: Batch) -> bool:
    """Whether a batch contains a placeholder, because all rows of this process are empty or missing."""
    return "idle" in batch and bool(batch["idle"])


def draw_for(batch: Batch, draw: Callable[[list[int]], Tensor]) -> Tensor:
    """Draw a random value for each unit of a batch, `(N, L)`, by a function of the shape.

    The values do not depend on the number of processes: the batch of a shard has `rows`, the indices of its rows;
    `whole_shape`, the shape of the batch of all shards; and `seed`, the seed of the step.
    """
    if "rows" not in batch:
        return draw([len(batch["lengths"]), int(batch["lengths"].max())])
    with restore_random_state(batch["rows"].device):
        torch.manual_seed(int(batch["seed"]))
        drawn = draw(batch["whole_shape"].tolist())
    return drawn[batch["rows"], : int(batch["lengths"].max())]


def _count_units(fields: Encoded) -> int:
    """The number of units of an encoded example: the length of its first field."""
    return len(next(iter(fields.values())))


def lengths(encoded: Sequence[Encoded]) -> Lengths:
    """Return the number of units of each encoded example, `(N,)`."""
    if isinstance(encoded, Corpus) and encoded.has_tokens:
        return encoded.lengths
    return [*map(_count_units, encoded)]


@dataclass(frozen=True, eq=False)
class Loader:
    """Yields the batches of an epoch, without the first `skip`, as padded tensors.

    If all rows of the shard are empty or missing in a batch, another row is read as a placeholder and `idle` is true,
    because every process must compute each step.
    """

    encoded: Sequence[Encoded]
    batches: Batches
    padding: Mapping[str, int]
    skip: int = 0
    shard: Shard = ALL_ROWS

    def __len__(self) -> int:
        return len(self.batches) - self.skip

    def __iter__(self) -> Iterator[Batch]:
        for pieces in islice(self.batches, self.skip, None):
            rows = self.shard.of(pieces)
            idle = not any(map(len, rows))
            if idle:
                rows = [next(filter(len, pieces)), *rows[1:]]
            batch = collate(self.encoded, rows, self.padding)
            if self.shard.size > 1:
                batch["idle"] = torch.tensor(idle)
                batch["rows"] = torch.tensor(self.shard.of(range(len(pieces))) or [0])
                batch["whole_shape"] = torch.tensor([len(pieces), max(map(len, pieces))])
            yield batch


def _cut(encoded: Sequence[Encoded], piece: Piece) -> Encoded:
    if isinstance(encoded, Corpus) and encoded.has_tokens:
        return encoded.cut(piece.index, piece.start, piece.stop)
    fields = encoded[piece.index]
    if len({len(field) for field in fields.values() if field.ndim}) > 1:
        return fields
    return {name: field[piece.start : piece.stop] if field.ndim else field for name, field in fields.items()}


def _pad(arrays: Sequence[np.ndarray], fill: int) -> Tensor:
    shape = [max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True)]
    padded = np.full((len(arrays), *shape), fill, dtype=arrays[0].dtype)
    for row, array in enumerate(arrays):
        region: tuple[int | slice, ...] = (row, *(slice(size) for size in array.shape))
        padded[region] = array
    return torch.from_numpy(padded)
