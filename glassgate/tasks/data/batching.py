"""Strategies that divide examples into batches for training and evaluation."""

from collections.abc import Iterator

import numpy as np

from glassgate.tasks.data.batches import (
    MOST_UNITS,
    Batches,
    Cuts,
    Lengths,
    Piece,
    Streams,
    evaluation_batches,
    training_batches,
)
from glassgate.tasks.options import Options

_ROWS = 32  # minimum number of rows of an evaluation batch; smaller batches are only slower
_SHORTEST_COLUMN = 10_000  # units; in so long a column, the missing initial state does not change the scores


class Batching:
    """Batches of pieces of similar length.

    Args:
        options: batch size and seed
        longest: training cuts longer sequences into pieces of this many units; 0 cuts none
        evaluated: evaluation cuts longer sequences into pieces of this many units; 0 cuts none
        rows: the number of rows of an evaluation batch; 0 for the batch size, but at least 32
        most_units: the maximum number of units of an evaluation batch, including padding
    """

    def __init__(
        self, options: Options, longest: int = 0, *, evaluated: int = 0, rows: int = 0, most_units: int = MOST_UNITS
    ):
        self.options, self.longest, self.evaluated, self.most_units = options, longest, evaluated, most_units
        self.rows = rows or max(_ROWS, options.batch_size)

    def examples(self, lengths: Lengths) -> int:
        """Return the number of examples in an epoch: pieces, windows or chunks."""
        return len(Cuts(lengths, self.longest).index)

    def units(self, lengths: Lengths) -> int:
        """Return the total number of units in the batches of an epoch."""
        return int(np.sum(lengths, dtype=np.int64))

    def training(self, lengths: Lengths, epoch: int) -> Batches:
        """Return the batches of an epoch, counted from 0; they depend only on options, lengths and epoch."""
        return training_batches(lengths, self.options.batch_size, self.longest, self.options.seed, epoch)

    def evaluation(self, lengths: Lengths) -> Batches:
        """Return the batches for scores and predictions."""
        return evaluation_batches(lengths, self.rows, self.evaluated, self.most_units)


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
        self.sizes = _chunk_sizes(self.longest, chunk)

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


class ChunkBatching(Batching):
    """Batches of whole sequences of similar length, which training reads chunk by chunk; see `Chunks`.

    A step then costs about the same for sequences of any length, and long sequences get more steps per epoch.

    Args:
        options: batch size and seed
        chunk: the number of units of a chunk
    """

    def __init__(self, options: Options, chunk: int):
        super().__init__(options)
        self.chunk = chunk

    def examples(self, lengths: Lengths) -> int:
        lengths = np.asarray(lengths)
        return int(np.sum(-(-lengths // _chunk_sizes(lengths, self.chunk))))

    def training(self, lengths: Lengths, epoch: int) -> Batches:
        return Chunks(training_batches(lengths, self.options.batch_size, 0, self.options.seed, epoch), self.chunk)


class StreamBatching(Batching):
    """Batches of chunks: each row continues the same row of the previous batch; see `Streams`.

    Args:
        options: batch size and seed
        chunk: the number of units of a chunk
    """

    def __init__(self, options: Options, chunk: int):
        super().__init__(options)
        self.chunk = chunk

    def examples(self, lengths: Lengths) -> int:
        return -(-self.units(lengths) // self.chunk)

    def training(self, lengths: Lengths, epoch: int) -> Batches:
        first = 1 + int(np.random.default_rng([self.options.seed, epoch]).integers(self.chunk))
        return Streams(lengths, self.options.batch_size, self.chunk, first)

    def evaluation(self, lengths: Lengths) -> Batches:
        return Streams(lengths, min(self.rows, max(1, sum(lengths) // _SHORTEST_COLUMN)), self.chunk)


def _chunk_sizes(lengths: np.ndarray, chunk: int) -> np.ndarray:
    """The number of units of each sequence's chunks, which are as equal and as close to `chunk` as possible."""
    counts = np.maximum(1, np.rint(lengths / chunk)).astype(lengths.dtype)
    return -(-lengths // counts)
