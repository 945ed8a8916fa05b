"""Where the elements of the values of a step are: arrays, and the index of each element as an expression."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from glassgate.engines.lowering.expressions import PRODUCT, SUM, Expression

Position = Mapping[str, Expression]
"""The index along each axis."""


@dataclass(frozen=True)
class Place:
    """Where the elements of a value are.

    Attributes:
        array: the expression of the array.
        strides: the distance of elements along each axis. The value is constant along other axes.
        base: the expression of the index of the first element; "" for 0.
    """

    array: str
    strides: Mapping[str, int]
    base: str = ""

    def element(self, at: Position) -> Expression:
        """The element at a position."""
        terms = {axis: stride for axis, stride in self.strides.items() if axis in at}
        return Expression(f"{self.array}[{linear(at, terms, 0, self.base).text}]")


def linear(at: Position, terms: Mapping[str, int], offset: int, base: str = "") -> Expression:
    """Return the sum of indices, each multiplied by a factor, and of an offset."""
    parts = [Expression(base)] if base else []
    for axis, factor in terms.items():
        index = at[axis]
        parts.append(index if factor == 1 else Expression(f"{index.as_operand(PRODUCT)} * {factor}", PRODUCT))
    if offset or not parts:
        parts.append(Expression(str(offset)))
    return parts[0] if len(parts) == 1 else Expression(" + ".join(part.as_operand(SUM) for part in parts), SUM)


def strides_of(axes: Sequence[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """The strides of an array whose elements are in the order of these axes."""
    return {axis: prod(sizes[inner] for inner in axes[k + 1 :]) for k, axis in enumerate(axes)}
