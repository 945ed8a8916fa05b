"""How a task's examples become the batches of an epoch and of an evaluation."""

import numpy as np

from glassgate.tasks.data.batches import MOST_UNITS, Batches, Cuts, Lengths, Streams, shuffled, whole
from glassgate.tasks.options import Options

_ROWS = 32  # an evaluation batch has at least so many rows: smaller ones only take longer
_SHORTEST_COLUMN = 10_000  # units; the missing state at the start of such a column changes no score


class Batching:
    """Batches of pieces of similar length.

    Args:
        options: batch size and seed
        longest: training cuts longer sequences into pieces of so many units; 0 to cut none
        evaluated: evaluation cuts them into pieces of so many units; 0 to cut none
        rows: of an evaluation batch; 0 for the batch size, at least 32
        most_units: of an evaluation batch, padding included
    """

    def __init__(
        self, options: Options, longest: int = 0, *, evaluated: int = 0, rows: int = 0, most_units: int = MOST_UNITS
    ):
        self.options, self.longest, self.evaluated, self.most_units = options, longest, evaluated, most_units
        self.rows = rows or max(_ROWS, options.batch_size)

    def examples(self, lengths: Lengths) -> int:
        """Return the number of examples of an epoch: pieces, windows or chunks, as a batch counts them."""
        return len(Cuts(lengths, self.longest).index)

    def units(self, lengths: Lengths) -> int:
        """Return the number of units that the batches of an epoch hold together."""
        return int(np.sum(lengths, dtype=np.int64))

    def training(self, lengths: Lengths, epoch: int) -> Batches:
        """Return the batches of an epoch, counted from 0: a function of options, lengths and epoch alone."""
        return shuffled(lengths, self.options.batch_size, self.longest, self.options.seed, epoch)

    def evaluation(self, lengths: Lengths) -> Batches:
        """Return the batches in which examples are scored and predicted."""
        return whole(lengths, self.rows, self.evaluated, self.most_units)


class StreamBatching(Batching):
    """Chunks of columns: each row continues where it ended in the batch before.

    Args:
        options: batch size and seed
        chunk: units of a chunk
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
