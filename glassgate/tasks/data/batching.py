"""The division of sequences into pieces, and of pieces into batches, as functions of seed and epoch only.

A unit of a sequence is a token of a text or a step of a series. Tasks choose a `Batching`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise, zip_longest
from typing import Protocol

import numpy as np

from glassgate.tasks.options import Options

Lengths = Sequence[int] | np.ndarray
MAX_UNITS = 2**18
"""The maximum number of units of an evaluation batch, including padding; a single longer sequence is allowed."""

_MEASURED_BATCHES = 10_000  # the number of batches that `padding_fraction` examines
_MIN_ROWS = 32  # the minimum number of rows of an evaluation batch; smaller batches are slower
_MIN_STREAM = 10_000  # units; in streams of this length, the zero state at the start does not change the scores


@dataclass(frozen=True, slots=True)
class Piece:
    """Units `start` to `stop` - 1 of sequence `index`. `continues`: this row's previous piece ends at `start`."""

    index: int
    start: int
    stop: int
    continues: bool = False

    def __len__(self) -> int:
        return self.stop - self.start


class Batches(Protocol):
    """A sequence of batches: a list, or an object that creates the batches one by one."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[list[Piece]]: ...


class Cuts:
    """Batches of pieces of sequences, stored as arrays; iteration creates the `Piece` objects of each batch.

    Sequences with more than `longest` units are cut, unless it is 0. `first` is the size of the first piece of each
    sequence; 0 means `longest`.
    """

    def __init__(self, lengths: Lengths, longest: int, first: np.ndarray | None = None):
        units = int(np.sum(lengths, dtype=np.int64))
        dtype = np.int32 if units < 2**31 else np.int64
        lengths = np.asarray(lengths, dtype)
        self.index, self.start, self.stop = np.arange(len(lengths), dtype=dtype), np.zeros_like(lengths), lengths
        if longest and (lengths > longest).any():
            self._cut(lengths, dtype(longest), lengths * 0 if first is None else first.astype(dtype))
        self.bounds = np.zeros((0, 2), np.int64)

    def _cut(self, lengths: np.ndarray, longest: np.integer, first: np.ndarray) -> None:
        first = np.where(first, first, longest)
        cuts = np.maximum(0, -((first - lengths) // longest))  # the number of cuts in each sequence
        ends = np.cumsum(cuts + 1, dtype=cuts.dtype)
        self.index = np.repeat(self.index, cuts + 1)
        # The number of each piece within its sequence.
        number = np.arange(len(self.index), dtype=cuts.dtype) - (ends - cuts - 1)[self.index]
        previous_stop = first[self.index] + (number - 1) * longest
        self.start = np.where(number, previous_stop, 0)
        self.stop = np.where(number == cuts[self.index], lengths[self.index], previous_stop + longest)

    def __len__(self) -> int:
        return len(self.bounds)

    def __iter__(self) -> Iterator[list[Piece]]:
        for start, stop in self.bounds.tolist():
            columns = (array[start:stop].tolist() for array in (self.index, self.start, self.stop))
            yield [Piece(*values) for values in zip(*columns, strict=True)]

    def reorder(self, order: np.ndarray) -> None:
        """Reorder the pieces; `order` lists their indices."""
        self.index, self.start, self.stop = self.index[order], self.start[order], self.stop[order]

    def sizes(self) -> np.ndarray:
        """Return the length of each piece, `(P,)`."""
        return self.stop - self.start


def evaluation_batches(lengths: Lengths, batch_size: int, longest: int = 0, max_units: int = MAX_UNITS) -> Cuts:
    """Return batches for evaluation: the longest pieces first, each batch with pieces of similar length.

    A batch has at most `batch_size` pieces, and `max_units` units including padding unless it is a single piece.
    """
    cuts = Cuts(lengths, longest)
    cuts.reorder(np.argsort(-cuts.sizes(), kind="stable"))
    sizes, starts = cuts.sizes(), [0]
    while starts[-1] < len(sizes):
        rows = min(batch_size, max_units // max(1, int(sizes[starts[-1]])))
        starts.append(min(len(sizes), starts[-1] + max(1, rows)))
    cuts.bounds = np.stack([starts[:-1], starts[1:]], 1)
    return cuts


class Streams:
    """Batches for truncated backpropagation: all sequences are concatenated and divided into equal streams.

    Each row of a batch is the next chunk, of `longest` units, of one stream, so a network can carry its state from
    batch to batch, except where a sequence or a stream begins. A row is empty after the end of its stream. `first` is
    the size of the first chunk of each sequence in a stream; 0 for `longest`.

    Example:
        >>> for batch in Streams([10], rows=2, longest=3):
        ...     print([(piece.start, piece.stop, piece.continues) for piece in batch])
        [(0, 3, False), (5, 8, False)]
        [(3, 5, True), (8, 10, True)]
    """

    def __init__(self, lengths: Lengths, rows: int, longest: int, first: int = 0):
        self.longest, self.first = longest, first or longest
        stream_length = -(-sum(lengths) // rows)
        self.streams: list[list[tuple[int, int, int]]] = [[] for _ in range(rows)]  # (sequence, start, stop)
        position = 0
        for index, length in enumerate(lengths):
            start = 0
            while start < length:
                stream, used = divmod(position, stream_length)
                stop = min(length, start + stream_length - used)
                self.streams[stream].append((index, start, stop))
                position, start = position + stop - start, stop

    def __len__(self) -> int:
        return max(
            sum(1 + max(0, -((start + self.first - stop) // self.longest)) for _, start, stop in stream)
            for stream in self.streams
        )

    def __iter__(self) -> Iterator[list[Piece]]:
        streams = (self._pieces(stream) for stream in self.streams)
        return (list(batch) for batch in zip_longest(*streams, fillvalue=Piece(0, 0, 0)))

    def _pieces(self, stream: Sequence[tuple[int, int, int]]) -> Iterator[Piece]:
        for index, start, stop in stream:
            cuts = range(start + self.first, stop, self.longest)
            for begin, end in pairwise(chain([start], cuts, [stop])):
                yield Piece(index, begin, end, begin > start)


class Chunks:
    """Batches for truncated backpropagation: each batch of whole sequences becomes several batches of chunks.

    All sequences of a batch are cut at the same positions into chunks of nearly equal size. Each row continues in the
    next batch, so a network can carry its state. A row is empty after the end of its sequence. In each of `batches`,
    the longest sequence is the last.

    Example:
        >>> for batch in Chunks(training_batches([9, 10], batch_size=2, longest=0, seed=1, epoch=0), chunk=4):
        ...     print([(piece.start, piece.stop, piece.continues) for piece in batch])
        [(0, 5, False), (0, 5, False)]
        [(5, 9, True), (5, 10, True)]
    """

    def __init__(self, batches: Cuts, chunk: int):
        self.batches = batches
        self.longest = batches.sizes()[batches.bounds[:, 1] - 1]
        self.sizes = chunk_sizes(self.longest, chunk)

    def __len__(self) -> int:
        return int(np.sum(-(-self.longest // self.sizes)))

    def __iter__(self) -> Iterator[list[Piece]]:
        for pieces, longest, size in zip(self.batches, self.longest.tolist(), self.sizes.tolist(), strict=True):
            for start in range(0, longest, size):
                stops = [min(start + size, len(piece)) for piece in pieces]
                yield [
                    Piece(piece.index, start, stop, start > 0) if start < stop else Piece(0, 0, 0)
                    for piece, stop in zip(pieces, stops, strict=True)
                ]


def chunk_sizes(lengths: np.ndarray, chunk: int) -> np.ndarray:
    """Return the chunk size of each sequence: about `chunk`, so that its chunks have nearly equal lengths."""
    counts = np.maximum(1, np.rint(lengths / chunk)).astype(lengths.dtype)
    return -(-lengths // counts)


def training_batches(lengths: Lengths, batch_size: int, longest: int, seed: int, epoch: int) -> Cuts:
    """Return the batches of an epoch, counted from 0: pieces of similar length in each, in random order.

    Sequences with more than `longest` units are cut from a random offset, unless it is 0.

    Example:
        >>> batches = training_batches([3, 5, 3, 5], batch_size=2, longest=0, seed=1, epoch=0)
        >>> sorted([len(piece) for piece in batch] for batch in batches)
        [[3, 3], [5, 5]]
    """
    random, lengths = np.random.default_rng([seed, epoch]), np.asarray(lengths)
    first = np.zeros_like(lengths)
    if longest and (is_cut := lengths > longest).any():
        first[is_cut] = 1 + random.integers(longest, size=is_cut.sum())
    cuts = Cuts(lengths, longest, first)
    cuts.reorder(random.permutation(len(cuts.index)))
    cuts.reorder(np.argsort(cuts.sizes(), kind="stable"))
    starts = random.permutation(-(-len(cuts.index) // batch_size)) * batch_size
    cuts.bounds = np.stack([starts, np.minimum(starts + batch_size, len(cuts.index))], 1)
    return cuts


def padding_fraction(batches: Batches) -> float:
    """Return the fraction of the values of the first 10,000 batches that are padding.

    Example:
        >>> padding_fraction([[Piece(0, 0, 4), Piece(1, 0, 2)]])
        0.25
    """
    lengths = [[len(piece) for piece in batch] for batch in islice(batches, _MEASURED_BATCHES)]
    padded = sum(max(batch) * len(batch) for batch in lengths)
    return 1 - sum(map(sum, lengths)) / padded if padded else 0.0


class Batching:
    """Batches of pieces of similar length.

    Args:
        options: batch size and seed
        longest: training cuts longer sequences into pieces of this many units; 0 cuts none
        longest_evaluated: the same for evaluation
        rows: the number of rows of an evaluation batch; 0 for the batch size, but at least 32
        max_units: the maximum number of units of an evaluation batch, including padding
    """

    def __init__(
        self,
        options: Options,
        longest: int = 0,
        *,
        longest_evaluated: int = 0,
        rows: int = 0,
        max_units: int = MAX_UNITS,
    ):
        self.options, self.longest, self.max_units = options, longest, max_units
        self.longest_evaluated = longest_evaluated
        self.rows = rows or max(_MIN_ROWS, options.batch_size)

    def count_examples(self, lengths: Lengths) -> int:
        """Return the number of training examples in an epoch: pieces, windows or chunks."""
        return len(Cuts(lengths, self.longest).index)

    def count_units(self, lengths: Lengths) -> int:
        """Return the total number of units in the batches of an epoch."""
        return int(np.sum(lengths, dtype=np.int64))

    def training(self, lengths: Lengths, epoch: int) -> Batches:
        """Return the batches of an epoch, counted from 0; they depend only on options, lengths and epoch."""
        return training_batches(lengths, self.options.batch_size, self.longest, self.options.seed, epoch)

    def evaluation(self, lengths: Lengths) -> Batches:
        """Return the batches for scores and predictions."""
        return evaluation_batches(lengths, self.rows, self.longest_evaluated, self.max_units)


class ChunkBatching(Batching):
    """Batches of whole sequences of similar length, read in chunks of about `longest` units in training; see `Chunks`.

    A training step costs about the same for sequences of any length, and long sequences get more steps per epoch.
    """

    def count_examples(self, lengths: Lengths) -> int:
        lengths = np.asarray(lengths)
        return int(np.sum(-(-lengths // chunk_sizes(lengths, self.longest))))

    def training(self, lengths: Lengths, epoch: int) -> Batches:
        return Chunks(training_batches(lengths, self.options.batch_size, 0, self.options.seed, epoch), self.longest)


class StreamBatching(Batching):
    """Batches of chunks of `longest` units. A row continues the same row of the previous batch; see `Streams`."""

    def count_examples(self, lengths: Lengths) -> int:
        return -(-self.count_units(lengths) // self.longest)

    def training(self, lengths: Lengths, epoch: int) -> Batches:
        first = 1 + int(np.random.default_rng([self.options.seed, epoch]).integers(self.longest))
        return Streams(lengths, self.options.batch_size, self.longest, first)

    def evaluation(self, lengths: Lengths) -> Batches:
        return Streams(lengths, min(self.rows, max(1, sum(lengths) // _MIN_STREAM)), self.longest)
