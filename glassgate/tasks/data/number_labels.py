"""Parses labels that are numbers; means and standard deviations for standardisation."""

import re

import numpy as np

from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.errors import DataError


def numbers_of(example: Labelled, count: int | None = None) -> np.ndarray:
    """Return the numbers of an example, `(K,)`: separated by spaces, commas or semicolons in its label, or a list.

    Args:
        example: the example
        count: the expected count of numbers; any if None

    Raises:
        DataError: the label has no numbers, or another count of them

    Example:
        >>> numbers_of(Labelled("too salty", "2.5 -1"), 2)
        array([ 2.5, -1. ])
        >>> numbers_of(Labelled("too salty", "[2.5, -1]"))
        array([ 2.5, -1. ])
    """
    words = re.split(r"[\s,;]+", (example.label or "").strip(" []"))
    try:
        numbers = np.array([float(word) for word in words])
    except ValueError:
        numbers = np.array([np.nan])
    if not np.isfinite(numbers).all():
        raise DataError(example.source, example.line, f"expected numbers as the label, got {example.label!r}")
    if len(numbers) != (count or len(numbers)):
        raise DataError(
            example.source, example.line, f"expected {count} numbers as in training, got {len(numbers)}; add the others"
        )
    return numbers


def scale(rows: np.ndarray) -> list[list[float]]:
    """Return the mean and the standard deviation of each column of `(N, K)`; a constant column has deviation 1."""
    deviation = rows.std(0, dtype=np.float64)
    return [rows.mean(0, dtype=np.float64).tolist(), np.where(deviation > 1e-8, deviation, 1.0).tolist()]
