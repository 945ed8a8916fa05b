"""How long to train and in what steps, by the number of examples: what the defaults of all tasks follow.

`make defaults` measures them on three data sets a task, and docs/defaults.md shows how far they stand from the best
settings found.
"""

import math
from typing import NamedTuple

_LITTLE, _MUCH = 4, 32  # examples a step
_EXAMPLES_A_SQUARE = 64  # a step takes the root of one in so many
_STEPS = 2_000
_FEWEST, _MOST = 10, 60  # epochs


class BySize(NamedTuple):
    """What the number of examples decides.

    Attributes:
        batch_size: examples a step
        epochs: passes over them
    """

    batch_size: int
    epochs: int


def by_size(examples: int, batch_size: int = 0, epochs: int = 0) -> BySize:
    """Return how training data of so many examples is best gone through.

    A step takes about the root of a 64th of the examples, a power of two from 4 to 32: little data makes many small
    steps rather than few large ones. Epochs are 10, and as many more as 2,000 steps need, 60 at most.

    Args:
        examples: sequences, pieces of long ones, chunks of a text, windows of a series: what a batch counts
        batch_size, epochs: where these are given; 0 where they are not

    Example:
        >>> by_size(100), by_size(3_000), by_size(100_000)
        (BySize(batch_size=4, epochs=60), BySize(batch_size=8, epochs=10), BySize(batch_size=32, epochs=10))
    """
    root = math.sqrt(max(1, examples) / _EXAMPLES_A_SQUARE)
    size = batch_size or min(_MUCH, max(_LITTLE, 2 ** round(math.log2(root))))
    steps = -(-max(1, examples) // size)
    return BySize(size, epochs or min(_MOST, max(_FEWEST, -(-_STEPS // steps))))
