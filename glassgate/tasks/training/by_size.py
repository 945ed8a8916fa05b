"""Default batch size and number of epochs of all tasks, by the number of training examples.

`make defaults` measures them on three data sets per task. docs/defaults.md compares them with the best settings found.
"""

import math
from typing import NamedTuple

_MIN_BATCH_SIZE, _MAX_BATCH_SIZE = 4, 32
_EXAMPLES_DIVISOR = 64  # the batch size is about the square root of the number of examples / 64
_MIN_STEPS = 2_000
_MIN_EPOCHS, _MAX_EPOCHS = 10, 250


class BySize(NamedTuple):
    """The settings that depend on the number of examples.

    Attributes:
        batch_size: examples per step
        epochs: passes over the data
    """

    batch_size: int
    epochs: int


def by_size(examples: int, batch_size: int = 0, epochs: int = 0) -> BySize:
    """Return the batch size and the number of epochs for a number of training examples.

    The batch size is about the square root of 1/64 of the number of examples, as a power of two from 4 to 32. With few
    examples, many small steps train better than few large ones. The number of epochs is the smallest one from 10 to
    250 that gives at least 2,000 steps, or 250 if none does.

    Args:
        examples: the number of sequences, pieces of long sequences, chunks of text or music, or windows of a series
        batch_size, epochs: values to keep; 0 to choose by size

    Example:
        >>> by_size(100), by_size(3_000), by_size(100_000)
        (BySize(batch_size=4, epochs=80), BySize(batch_size=8, epochs=10), BySize(batch_size=32, epochs=10))
    """
    square_root = math.sqrt(max(1, examples) / _EXAMPLES_DIVISOR)
    size = batch_size or min(_MAX_BATCH_SIZE, max(_MIN_BATCH_SIZE, 2 ** round(math.log2(square_root))))
    steps_per_epoch = -(-max(1, examples) // size)
    return BySize(size, epochs or min(_MAX_EPOCHS, max(_MIN_EPOCHS, -(-_MIN_STEPS // steps_per_epoch))))
