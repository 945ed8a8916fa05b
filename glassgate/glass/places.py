"""Sequences of a data set inside a report page, in which users search for steps with similar states."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

MAX_BYTES = 200_000
"""The approximate maximum size in bytes of the states and texts in a page."""
HIGHEST_LEVEL = 15
"""The highest level of a state in 4 bits."""


@dataclass
class Places:
    """Some sequences of a data set, with their states and texts.

    Attributes:
        states: the outputs at all T steps of all sequences, (H, T), by the label of the direction
        texts: the texts of the steps of each sequence
        numbers: the index of each sequence in the data set
        mean, deviation: the mean and standard deviation of the output over all steps that were read, (H,), by label
        data: the name of the data: "dev", "test" or "train"
        steps_read: the number of steps of the data set that were read
    """

    states: Mapping[str, np.ndarray]
    mean: Mapping[str, np.ndarray]
    deviation: Mapping[str, np.ndarray]
    texts: Sequence[Sequence[str]]
    numbers: Sequence[int]
    data: str
    steps_read: int

    @property
    def steps(self) -> int:
        """T, the number of steps of these sequences."""
        return sum(map(len, self.texts))


def steps_within(size: int, units: int, text_bytes: float) -> int:
    """The number of steps that fit into `size` bytes, with `units` units and `text_bytes` bytes of text per step.

    Example:
        >>> steps_within(300_000, 128, 5.0)
        3214
    """
    return int(size / (units / 2 * 4 / 3 + text_bytes + 3))


def pack_states(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pack states (H, T) in 4 bits each. A state is low + spacing * level.

    Returns:
        Bytes (H, ceil(T / 2)), each with the levels of two steps, and `low` and `spacing`, (H,) each.

    Example:
        >>> levels, low, spacing = pack_states(np.array([[0.0, 1.0, 0.2], [-1.0, -1.0, 2.0]]))
        >>> levels.tolist(), low.tolist(), spacing.round(3).tolist()
        ([[240, 3], [0, 15]], [0.0, -1.0], [0.067, 0.2])
    """
    low = values.min(1)
    spacing = np.maximum(values.max(1) - low, 1e-6) / HIGHEST_LEVEL
    levels = np.rint((values - low[:, None]) / spacing[:, None]).astype(np.uint8)
    levels = np.pad(levels, ((0, 0), (0, levels.shape[1] % 2)))
    return levels[:, ::2] | levels[:, 1::2] << 4, low, spacing
