"""The length of training and its batch size, by the number of examples: the defaults of all tasks.

`make defaults` measures them on three data sets per task, and docs/defaults.md compares them with the best settings
found.
"""

import math
from typing import NamedTuple

_LITTLE, _MUCH = 4, 32  # examples a step
_EXAMPLES_A_SQUARE = 64  # a step takes the root of one in so many
_STEPS = 2_000
_FEWEST, _MOST = 10, 60  # epochs


class BySize(NamedTuple):
    """The settings that depend on the number of examples.

    Attributes:
        batch_size: examples a step
        epochs: passes over them
    """

    batch_size: int
    epochs: int


def by_size(examples: int, batch_size: int = 0, epochs: int = 0) -> BySize:
    """Return the batch size and the number of epochs for a number of training examples.

    The batch size is about the root of a 64th of the examples, a power of two from 4 to 32: little data is used in many
    small steps rather than few large ones. There are 10 epochs, or as many as 2,000 steps need, at most 60.

    Args:
        examples: the units of a batch: sequences, pieces of long ones, chunks of a text, windows of a series
        batch_size, epochs: given values; 0 if not given

    Example:
        >>> by_size(100), by_size(3_000), by_size(100_000)
        (BySize(batch_size=4, epochs=60), BySize(batch_size=8, epochs=10), BySize(batch_size=32, epochs=10))
    """
    root = math.sqrt(max(1, examples) / _EXAMPLES_A_SQUARE)
    size = batch_size or min(_MUCH, max(_LITTLE, 2 ** round(math.log2(root))))
    steps = -(-max(1, examples) // size)
    return BySize(size, epochs or min(_MOST, max(_FEWEST, -(-_STEPS // steps))))
