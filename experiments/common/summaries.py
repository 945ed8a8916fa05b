"""Statistics of repeated measurements."""

import statistics
from collections.abc import Sequence


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Return the ratio of each round."""
    return [a / b for a, b in zip(numerators, denominators, strict=True)]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile.

    Example:
        >>> quartiles([3.0, 1.0, 2.0])
        (1.5, 2.0, 2.5)
    """
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def mean_and_deviation(values: Sequence[float], places: int) -> str:
    """Return the mean as text, with the standard deviation if there are several values.

    Example:
        >>> mean_and_deviation([1.0, 2.0], 2), mean_and_deviation([1.0], 2)
        ('1.50 ± 0.71', '1.00')
    """
    parts = [statistics.mean(values), *([statistics.stdev(values)] if len(values) > 1 else [])]
    return " ± ".join(f"{part:.{places}f}" for part in parts)
