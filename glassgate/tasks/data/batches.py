"""Batches of pieces of sequences, as functions of seed and epoch only; and their padded tensors.

A unit of a sequence is a token of a text or a step of a series.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise, zip_longest
from typing import Any, Protocol, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.data.store.examples import Stored

Encoded = Mapping[str, np.ndarray]
Batch = dict[str, Tensor]
Lengths = Sequence[int] | np.ndarray
Row = TypeVar("Row")

MOST_UNITS = 2**18
"""The maximum number of units of an evaluation batch, including padding; a single longer sequence is allowed."""

# The number of batches whose padding is measured.
_MEASURED = 10_000
# The fields that the CPU reads.
_ON_CPU = ("lengths", "characters", "continues", "idle", "whole", "seed")


@dataclass(frozen=True, slots=True)
class Piece:
    """Units `start` to `stop` of sequence `index`; and whether it continues the same row of the previous batch."""

    index: int
    start: int
    stop: int
    continues: bool = False

    def __len__(self) -> int:
        return self.stop - self.start


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
        """Return this process's states, `(layers, N, H)`."""
        return states[:, self.rank :: self.size].contiguous()


ALL = Shard()


def joined_streams(shards: Sequence[Tensor]) -> Tensor:
    """Interleave the states of all shards, `(layers, N, H)` each, in the order of the rows of the whole batch."""
    joined = shards[0].new_empty(len(shards[0]), sum(each.shape[1] for each in shards), shards[0].shape[2])
    for rank, states in enumerate(shards):
        joined[:, rank :: len(shards)] = states
    return joined


class Batches(Protocol):
    """A sequence of batches: a list, or an object that creates them one by one."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[list[Piece]]: ...


class Cuts:
    """Batches of pieces of sequences, stored as arrays; the `Piece` objects of a batch are created on iteration.

    Args:
        lengths: the number of units of each sequence
        longest: longer sequences are cut into pieces of this many units; 0 cuts none
        first: the number of units of each sequence's first piece; `longest` where it is 0
    """

    def __init__(self, lengths: Lengths, longest: int, first: np.ndarray | None = None):
        units = int(np.sum(lengths, dtype=np.int64))
        kind = np.int32 if units < 2**31 else np.int64
        lengths = np.asarray(lengths, kind)
        self.index, self.start, self.stop = np.arange(len(lengths), dtype=kind), np.zeros_like(lengths), lengths
        if longest and (lengths > longest).any():
            self._cut(lengths, kind(longest), lengths * 0 if first is None else first.astype(kind))
        self.bounds = np.zeros((0, 2), np.int64)

    def _cut(self, lengths: np.ndarray, longest: np.integer, first: np.ndarray) -> None:
        """Replace sequences by their pieces."""
        first = np.where(first, first, longest)
        inner = np.maximum(0, -((first - lengths) // longest))
        ends = np.cumsum(inner + 1, dtype=inner.dtype)
        self.index = np.repeat(self.index, inner + 1)
        number = np.arange(len(self.index), dtype=inner.dtype) - (ends - inner - 1)[self.index]
        before = first[self.index] + (number - 1) * longest
        self.start = np.where(number, before, 0)
        self.stop = np.where(number == inner[self.index], lengths[self.index], before + longest)

    def __len__(self) -> int:
        return len(self.bounds)

    def __iter__(self) -> Iterator[list[Piece]]:
        for start, stop in self.bounds.tolist():
            parts = (each[start:stop].tolist() for each in (self.index, self.start, self.stop))
            yield [Piece(*cut) for cut in zip(*parts, strict=True)]

    def reorder(self, places: np.ndarray) -> None:
        """Reorder the pieces."""
        self.index = self.index[places]
        self.start = self.start[places]
        self.stop = self.stop[places]

    def sizes(self) -> np.ndarray:
        """The length of each piece, `(P,)`."""
        return self.stop - self.start


def evaluation_batches(lengths: Lengths, batch_size: int, longest: int = 0, most_units: int = MOST_UNITS) -> Cuts:
    """Return batches for evaluation, in descending order of length.

    Args:
        lengths: the number of units of each sequence
        batch_size: the maximum number of pieces in a batch
        longest: longer sequences are cut into pieces of this many units; 0 cuts none
        most_units: the maximum number of units of a batch, including padding; a single longer piece is allowed

    Example:
        >>> [len(piece) for batch in evaluation_batches([2, 9, 5], batch_size=2) for piece in batch]
        [9, 5, 2]
    """
    cuts = Cuts(lengths, longest)
    cuts.reorder(np.argsort(-cuts.sizes(), kind="stable"))
    sizes, starts = cuts.sizes(), [0]
    while starts[-1] < len(sizes):
        room = min(batch_size, most_units // max(1, int(sizes[starts[-1]])))
        starts.append(min(len(sizes), starts[-1] + max(1, room)))
    cuts.bounds = np.stack([starts[:-1], starts[1:]], 1)
    return cuts


class Streams:
    """Batches for truncated backpropagation: all sequences are concatenated and divided into `rows` equal columns.

    Each row of a batch is the next chunk of its column, so a network can carry its state from batch to batch. A piece
    does not continue the previous one where a sequence or a column begins. At the end of short columns, pieces are
    empty.

    Args:
        lengths: the number of units of each sequence
        rows: the number of columns
        longest: the number of units of a chunk
        first: the number of units of a sequence's first chunk in a column, which can differ between epochs; `longest`
            if 0

    Example:
        >>> for batch in Streams([10], rows=2, longest=3):
        ...     print([(piece.start, piece.stop, piece.continues) for piece in batch])
        [(0, 3, False), (5, 8, False)]
        [(3, 5, True), (8, 10, True)]
    """

    def __init__(self, lengths: Lengths, rows: int, longest: int, first: int = 0):
        self.longest = longest
        self.first = first
        height = -(-sum(lengths) // rows)
        self.columns: list[list[tuple[int, int, int]]] = [[] for _ in range(rows)]  # sequence, start, stop
        place = 0
        for index, length in enumerate(lengths):
            start = 0
            while start < length:
                row, used = divmod(place, height)
                stop = min(length, start + height - used)
                self.columns[row].append((index, start, stop))
                place, start = place + stop - start, stop

    def __len__(self) -> int:
        first = self.first or self.longest
        return max(
            sum(1 + max(0, -((start + first - stop) // self.longest)) for _, start, stop in c) for c in self.columns
        )

    def __iter__(self) -> Iterator[list[Piece]]:
        columns = (self._pieces(column) for column in self.columns)
        return (list(batch) for batch in zip_longest(*columns, fillvalue=Piece(0, 0, 0)))

    def _pieces(self, column: Sequence[tuple[int, int, int]]) -> Iterator[Piece]:
        for index, start, stop in column:
            for piece in _cut_up(index, start, stop, self.longest, self.first):
                yield Piece(index, piece.start, piece.stop, piece.start > start)


def training_batches(lengths: Lengths, batch_size: int, longest: int, seed: int, epoch: int) -> Cuts:
    """Return the batches of an epoch: pieces of similar length in each batch, batches in random order.

    Args:
        lengths: the number of units of each sequence
        batch_size: the number of pieces in a batch
        longest: longer sequences are cut into pieces of this many units, from a random offset; 0 cuts none
        seed: the seed of the order
        epoch: the number of the epoch, from 0

    Example:
        >>> batches = training_batches([3, 5, 3, 5], batch_size=2, longest=0, seed=1, epoch=0)
        >>> sorted([len(piece) for piece in batch] for batch in batches)
        [[3, 3], [5, 5]]
    """
    random, lengths = np.random.default_rng([seed, epoch]), np.asarray(lengths)
    first = np.zeros_like(lengths)
    if longest and (cut := lengths > longest).any():
        first[cut] = 1 + random.integers(longest, size=cut.sum())
    cuts = Cuts(lengths, longest, first)
    cuts.reorder(random.permutation(len(cuts.index)))
    cuts.reorder(np.argsort(cuts.sizes(), kind="stable"))
    starts = random.permutation(-(-len(cuts.index) // batch_size)) * batch_size
    cuts.bounds = np.stack([starts, np.minimum(starts + batch_size, len(cuts.index))], 1)
    return cuts


def padding(batches: Batches) -> float:
    """Return the fraction of the batches' values that are padding.

    Only the first 10,000 batches are measured.

    Example:
        >>> padding([[Piece(0, 0, 4), Piece(1, 0, 2)]])
        0.25
    """
    lengths = [[len(piece) for piece in batch] for batch in islice(batches, _MEASURED)]
    full = sum(max(batch) * len(batch) for batch in lengths)
    return 1 - sum(map(sum, lengths)) / full if full else 0.0


def sample(encoded: Sequence[Encoded], most: int, seed: int) -> list[Encoded]:
    """Draw sequences until they have `most` units together; the last one is cut if all its fields have one length.

    Example:
        >>> drawn = sample([{"units": np.arange(9)}, {"units": np.arange(9)}], most=12, seed=1)
        >>> [len(fields["units"]) for fields in drawn]
        [9, 3]
    """
    drawn: list[Encoded] = []
    for index in np.random.default_rng(seed).permutation(len(encoded)):
        if most <= 0:
            break
        drawn.append(_cut(encoded, Piece(int(index), 0, most)))
        most -= units(drawn[-1])
    return drawn


def collate(encoded: Sequence[Encoded], pieces: Sequence[Piece], padding: Mapping[str, int]) -> Batch:
    """Cut the pieces out of their sequences and pad each field to one tensor.

    Args:
        encoded: the fields of each sequence: `(L, ...)` with a value per unit, or `()` with one value per sequence. A
            sequence whose fields have different lengths, such as source and target, is never cut
        pieces: the rows of the batch
        padding: the padding value of each field

    Returns:
        the fields, `(N, L, ...)` or `(N,)`, and the pieces' `lengths` and `continues`, `(N,)`
    """
    rows = [_cut(encoded, piece) for piece in pieces]
    batch = {name: _padded([row[name] for row in rows], fill) for name, fill in padding.items() if name in rows[0]}
    batch["lengths"] = torch.tensor([len(piece) for piece in pieces])
    batch["continues"] = torch.tensor([piece.continues for piece in pieces])
    return batch


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Return a batch on a device, except the fields that the CPU reads.

    Every layer reads `lengths` on the CPU. If they were on a GPU, the call would wait for the GPU.
    """
    return {name: tensor if name in _ON_CPU else moved(tensor, device) for name, tensor in batch.items()}


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device. A copy from the CPU to a GPU is asynchronous."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def is_idle(batch: Batch) -> bool:
    """Whether a batch contains only a placeholder row, because the shard of this process is empty."""
    return "idle" in batch and bool(batch["idle"])


def draw_for(batch: Batch, draw: Callable[[list[int]], Tensor]) -> Tensor:
    """Draw a random value for each unit of a batch, `(N, L)`. The values do not depend on the number of processes.

    Args:
        batch: the batch, with `lengths`; a shard also has the indices of its `rows`, the shape of the `whole` batch and
            the `seed` of the step
        draw: draws values of a shape
    """
    if "rows" not in batch:
        return draw([len(batch["lengths"]), int(batch["lengths"].max())])
    device = batch["rows"].device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(int(batch["seed"]))
        drawn = draw(batch["whole"].tolist())
    return drawn[batch["rows"], : int(batch["lengths"].max())]


class LazyEncoded(Sequence[Encoded]):
    """Stored examples that are encoded when they are indexed.

    Args:
        examples: the examples
        encode: returns the fields of an example or of a part of one
    """

    def __init__(self, examples: Stored[Any], encode: Callable[[Any], Encoded]):
        self.examples = examples
        self.encode = encode

    def __len__(self) -> int:
        return len(self.examples)

    @overload
    def __getitem__(self, place: int) -> Encoded: ...
    @overload
    def __getitem__(self, place: slice) -> "LazyEncoded": ...
    def __getitem__(self, place: int | slice) -> "Encoded | LazyEncoded":
        if isinstance(place, slice):
            return LazyEncoded(self.examples[place], self.encode)
        return self.encode(self.examples[place])

    def cut(self, piece: Piece) -> Encoded:
        """Encode a piece of an example."""
        return self.encode(self.examples.cut(piece.index, piece.start, piece.stop))


def units(fields: Encoded) -> int:
    """Return the number of units of an encoded example: the length of its fields."""
    return len(next(iter(fields.values())))


def lengths(encoded: Sequence[Encoded]) -> Lengths:
    """Return the number of units of each encoded example, `(N,)`."""
    return encoded.examples.lengths if isinstance(encoded, LazyEncoded) else [units(fields) for fields in encoded]


@dataclass(frozen=True, eq=False)
class Loader:
    """Yields the batches of an epoch as padded tensors.

    Attributes:
        encoded: the sequences
        batches: the pieces of each batch
        padding: the padding value of each field
        first: the number of batches to skip
        shard: the rows to read; if they are missing or empty, another row is read as a placeholder and `idle` is true,
            because all processes must compute a step
    """

    encoded: Sequence[Encoded]
    batches: Batches
    padding: Mapping[str, int]
    first: int = 0
    shard: Shard = ALL

    def __len__(self) -> int:
        return len(self.batches) - self.first

    def __iter__(self) -> Iterator[Batch]:
        for pieces in islice(self.batches, self.first, None):
            rows = self.shard.of(pieces)
            idle = not any(map(len, rows))
            if idle:
                rows = [next(filter(len, pieces)), *rows[1:]]
            batch = collate(self.encoded, rows, self.padding)
            if self.shard.size > 1:
                batch["idle"] = torch.tensor(idle)
                batch["rows"] = torch.tensor(self.shard.of(range(len(pieces))) or [0])
                batch["whole"] = torch.tensor([len(pieces), max(map(len, pieces))])
            yield batch


def _cut_up(index: int, start: int, stop: int, longest: int, first: int = 0) -> Iterator[Piece]:
    """The pieces of a range: one if `longest` is 0; otherwise the first piece has `first` units (`longest` if 0)."""
    inner = range(start + (first or longest), stop, longest) if longest else ()
    return (Piece(index, *cut) for cut in pairwise(chain([start], inner, [stop])))


def _cut(encoded: Sequence[Encoded], piece: Piece) -> Encoded:
    if isinstance(encoded, LazyEncoded):
        return encoded.cut(piece)
    fields = encoded[piece.index]
    if len({len(field) for field in fields.values() if field.ndim}) > 1:
        return fields
    return {name: field[piece.start : piece.stop] if field.ndim else field for name, field in fields.items()}


def _padded(arrays: Sequence[np.ndarray], fill: int) -> Tensor:
    shape = [max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True)]
    padded = np.full((len(arrays), *shape), fill, dtype=arrays[0].dtype)
    for place, array in enumerate(arrays):
        where: tuple[int | slice, ...] = (place, *(slice(size) for size in array.shape))
        padded[where] = array
    return torch.from_numpy(padded)
