"""Where the elements of the values of a step are: arrays, and the index of each element as an expression."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

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

    def index(self, at: Position) -> str:
        """The index of the element at a position."""
        terms = {axis: stride for axis, stride in self.strides.items() if axis in at}
        return linear(at, terms, 0, self.base).text

    def element(self, at: Position) -> Expression:
        """The element at a position."""
        return Expression(f"{self.array}[{self.index(at)}]")


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


@dataclass
class PackedWeights:
    """Weights in the order in which a step reads them.

    The units of matrix products are divided into blocks, and their weights are stored as [block][row][unit of the
    block].

    Attributes:
        block: the number of units in a block.
        parts: the weights in order.
    """

    block: int
    parts: list[np.ndarray] = field(default_factory=list)

    def add(self, numbers: np.ndarray) -> str:
        """Add weights. Return the offset at which they begin as text; "" for 0."""
        offset = sum(part.size for part in self.parts)
        self.parts.append(numbers)
        return str(offset) if offset else ""

    @property
    def flat(self) -> np.ndarray:
        """All weights in one dimension; one zero if there are none."""
        parts = [part.reshape(-1) for part in self.parts]
        return np.concatenate(parts) if parts else np.zeros(1)  # C has no empty arrays

    def padded(self, units: int) -> int:
        """The number of units rounded up to whole blocks."""
        return -(-units // self.block) * self.block

    def blocks_of(self, vector: np.ndarray) -> np.ndarray:
        """Pad a vector (units,) with zeros, and reshape it to (blocks, block)."""
        padded = np.zeros(self.padded(len(vector)), vector.dtype)
        padded[: len(vector)] = vector
        return padded.reshape(-1, self.block)
