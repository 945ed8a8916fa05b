"""The division of sequences into pieces, and of pieces into batches, as functions of seed and epoch only.

A unit of a sequence is a token of a text or a step of a series.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise, zip_longest
from typing import Protocol

import numpy as np

Lengths = Sequence[int] | np.ndarray
MOST_UNITS = 2**18
"""The maximum number of units of an evaluation batch, including padding; a single longer sequence is allowed."""

# The number of batches whose padding is measured.
_MEASURED = 10_000


@dataclass(frozen=True, slots=True)
class Piece:
    """Units `start` to `stop` of sequence `index`; and whether it continues the same row of the previous batch."""

    index: int
    start: int
    stop: int
    continues: bool = False

    def __len__(self) -> int:
        return self.stop - self.start


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
            inner = range(start + (self.first or self.longest), stop, self.longest)
            for begin, end in pairwise(chain([start], inner, [stop])):
                yield Piece(index, begin, end, begin > start)


class Chunks:
    """Batches for truncated backpropagation: each batch of whole sequences becomes several batches of chunks.

    All rows of a batch are divided at the same places into chunks of nearly equal size. Each row continues in the next
    batch, so a network can carry its state. At the end of shorter sequences, pieces are empty.

    Args:
        cuts: batches of whole sequences, in ascending order of length within each batch
        chunk: the number of units of a chunk; each sequence is divided into the number of chunks that comes closest

    Example:
        >>> for batch in Chunks(training_batches([9, 10], batch_size=2, longest=0, seed=1, epoch=0), chunk=4):
        ...     print([(piece.start, piece.stop, piece.continues) for piece in batch])
        [(0, 5, False), (0, 5, False)]
        [(5, 9, True), (5, 10, True)]
    """

    def __init__(self, cuts: Cuts, chunk: int):
        self.cuts = cuts
        self.longest = cuts.sizes()[cuts.bounds[:, 1] - 1]
        self.sizes = chunk_sizes(self.longest, chunk)

    def __len__(self) -> int:
        return int(np.sum(-(-self.longest // self.sizes)))

    def __iter__(self) -> Iterator[list[Piece]]:
        for pieces, longest, size in zip(self.cuts, self.longest.tolist(), self.sizes.tolist(), strict=True):
            for start in range(0, longest, size):
                yield [self._chunk(piece, start, size) for piece in pieces]

    @staticmethod
    def _chunk(piece: Piece, start: int, size: int) -> Piece:
        stop = min(start + size, len(piece))
        return Piece(piece.index, start, stop, start > 0) if start < stop else Piece(0, 0, 0)


def chunk_sizes(lengths: np.ndarray, chunk: int) -> np.ndarray:
    """The number of units of each sequence's chunks, which are as equal and as close to `chunk` as possible."""
    counts = np.maximum(1, np.rint(lengths / chunk)).astype(lengths.dtype)
    return -(-lengths // counts)


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
