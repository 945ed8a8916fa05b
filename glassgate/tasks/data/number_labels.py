"""Parses labels that are numbers, and computes the means and standard deviations that standardise numbers."""

import re
from collections.abc import Sequence

import numpy as np

from glassgate.tasks.data.kinds import LARGEST, first_in_another_unit, parse_mark
from glassgate.tasks.data.labelled import Labelled

_DECIMAL_COMMA = re.compile(r"[+-]?(\d+,\d+|\d{1,3}(,\d{3})+)")
_COMMA_AFTER_GROUPS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+\.\d+")


def with_decimal_point(label: str, separator: str) -> str:
    """Replace the decimal commas in a label from a table by points, given the separator of its columns.

    In countries with a decimal comma, spreadsheets separate columns by semicolons. In such a table, `12,5` is one
    number. In any other table it is left unchanged.

    Example:
        >>> with_decimal_point("12,5", ";"), with_decimal_point("1,5 2,5", ";"), with_decimal_point("12,5", ",")
        ('12.5', '1.5 2.5', '12,5')
    """
    numbers = label.split()
    if separator == ";" and any(map(_COMMA_AFTER_GROUPS.fullmatch, numbers)):
        label = label.replace(".", "")
    elif separator != ";" or not any(map(_DECIMAL_COMMA.fullmatch, numbers)):
        return label
    return " ".join(number.replace(",", ".") for number in label.split())


def parse_numbers(example: Labelled, count: int | None = None) -> np.ndarray:
    """Return the numbers in the label of an example, `(K,)`.

    Spaces, commas or semicolons separate the numbers. The label may also be a list in square brackets, or a number with
    a mark, such as $3.50, 45% or 12K. `count` is the expected count of numbers; None accepts any.

    Example:
        >>> parse_numbers(Labelled("too salty", "2.5 -1"), 2)
        array([ 2.5, -1. ])
        >>> parse_numbers(Labelled("too salty", "[2.5, -1]"))
        array([ 2.5, -1. ])
    """
    text = (example.label or "").strip()
    if count in (None, 1) and _DECIMAL_COMMA.fullmatch(text):
        is_single = text.count(",") == 1
        point, space = text.replace(",", "." if is_single else ""), text.replace(",", " ")
        several = "two" if is_single else "several"
        raise example.fault(
            f"the label {text!r} can be one number or {several}; write {point!r} for one, {space!r} for {several}"
        )
    number, factor, *_ = parse_mark((example.label or "").strip(" []"))
    number = number.replace(",", "") if _THOUSANDS.fullmatch(number) else number
    try:
        numbers = np.array([float(word) * factor for word in re.split(r"[\s,;]+", number)])
    except ValueError:
        numbers = np.array([np.nan])
    if not (np.abs(numbers) <= LARGEST).all():
        raise example.fault(f"expected numbers as the label, got {example.label!r}")
    if len(numbers) != (count or len(numbers)):
        raise example.fault(f"expected {count} numbers, as in training, got {len(numbers)}; correct the label")
    return numbers


def check_units(examples: Sequence[Labelled]) -> None:
    """Raise an error if the labels are in several units, such as dollars and euros."""
    other = first_in_another_unit(example.label or "" for example in examples)
    if other is not None:
        got = examples[other].label
        raise examples[other].fault(
            f"the label {got!r} is in another unit than the labels above; convert all to one unit"
        )


def mean_and_deviation(rows: np.ndarray) -> list[list[float]]:
    """Return the means and standard deviations of the columns of `(N, K)`; a constant column gets the deviation 1."""
    deviation = rows.std(0, dtype=np.float64)
    return [rows.mean(0, dtype=np.float64).tolist(), np.where(deviation > 1e-8, deviation, 1.0).tolist()]
