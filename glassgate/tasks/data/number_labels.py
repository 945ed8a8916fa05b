"""Parses labels that are numbers; means and standard deviations for standardisation."""

import re

import numpy as np

from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.errors import DataError

_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


def with_decimal_point(label: str, separator: str) -> str:
    """Return the label of a table's row with a point for a decimal comma.

    Where the comma is the decimal sign, spreadsheets separate columns by semicolons. In such a table, `12,5` is a
    single number.

    Args:
        label: the cell
        separator: the separator of the table's columns

    Example:
        >>> with_decimal_point("12,5", ";"), with_decimal_point("1,5 2,5", ";"), with_decimal_point("12,5", ",")
        ('12.5', '1.5 2.5', '12,5')
    """
    numbers = label.split()
    if separator != ";" or not any(map(_DECIMAL_COMMA.fullmatch, numbers)):
        return label
    return " ".join(number.replace(",", ".") for number in numbers)


def numbers_of(example: Labelled, count: int | None = None) -> np.ndarray:
    """Return the numbers of an example, `(K,)`: separated by spaces, commas or semicolons in its label, or a list.

    Args:
        example: the example
        count: the expected count of numbers; any if None

    Raises:
        DataError: the label has no numbers, or another count of them; a comma in it is ambiguous

    Example:
        >>> numbers_of(Labelled("too salty", "2.5 -1"), 2)
        array([ 2.5, -1. ])
        >>> numbers_of(Labelled("too salty", "[2.5, -1]"))
        array([ 2.5, -1. ])
    """
    if count in (None, 1) and _DECIMAL_COMMA.fullmatch(label := (example.label or "").strip()):
        point, space = label.replace(",", "."), label.replace(",", " ")
        raise DataError(
            example.source,
            example.line,
            f"the label {label!r} can be one number or two; write {point!r} for the first, {space!r} for the second",
        )
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
