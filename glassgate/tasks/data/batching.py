"""Strategies that divide examples into batches for training and evaluation. Units are tokens, or steps of series."""

import numpy as np

from glassgate.tasks.data.pieces import (
    MAX_UNITS,
    Batches,
    Chunks,
    Cuts,
    Lengths,
    Streams,
    chunk_sizes,
    evaluation_batches,
    training_batches,
)
from glassgate.tasks.options import Options

_MIN_ROWS = 32  # the minimum number of rows of an evaluation batch; smaller batches are slower
_MIN_STREAM = 10_000  # units; in streams of this length, the zero state at the start does not change the scores


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
