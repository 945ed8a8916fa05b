"""The sizes of a call, and the arithmetic of its matrix products on this processor."""

from enum import IntEnum
from typing import NamedTuple

from glassgate.engines.axes import FEATURES, PER_ROW, PROJECTED, UNITS, Axis
from glassgate.engines.plan import Sizes


class Arithmetic(IntEnum):
    """The arithmetic of matrix products. A positive value is the number of bfloat16 products per product."""

    INTEGERS = -1
    """Matrices and rows are quantised to 8-bit integers."""
    FULL = 0
    """The dtype of the data."""
    BFLOAT16 = 1
    """Both operands are rounded to bfloat16."""
    SPLIT_BFLOAT16 = 3
    """Each operand is the sum of two bfloat16 numbers. The product of the low parts is omitted."""

    @property
    def terms(self) -> int:
        """The number of bfloat16 products per product; 0 without bfloat16."""
        return max(self, 0)


class KernelSizes(NamedTuple):
    """The sizes that, with the plan, determine the memory layout of a direction.

    Attributes:
        N: the largest batch size of a call, see `capacity`.
        D, H, P, bits: as in `Sizes`.
        arithmetic: the arithmetic of matrix products.
        input_arithmetic: the arithmetic of the input GEMM, if it differs.
        has_few_inputs: whether the input has so few columns that each step computes its own input product. Such a pass
            keeps no values for a backward pass.
    """

    N: int
    D: int
    H: int
    P: int
    bits: int
    arithmetic: Arithmetic = Arithmetic.FULL
    input_arithmetic: Arithmetic | None = None
    has_few_inputs: bool = False

    @property
    def base_sizes(self) -> Sizes:
        """The sizes without the arithmetic."""
        return Sizes(*self[:5])

    @property
    def effective_input_arithmetic(self) -> Arithmetic:
        """The arithmetic of the input GEMM."""
        return self.arithmetic if self.input_arithmetic is None else self.input_arithmetic

    def extent(self, axis: Axis) -> int:
        """Return the number of values along an axis of a row."""
        return {FEATURES: self.D, UNITS: self.H, PROJECTED: self.P, PER_ROW: 1}[axis]

    @staticmethod
    def capacity(N: int, arithmetic: Arithmetic) -> int:
        """Return the largest batch size of the calls that share a pass with a call of N sequences: a power of two.

        Calls of any batch size thus share few passes. Methods for bfloat16 are chosen for one batch size.
        """
        return N if arithmetic or not N else 1 << (N - 1).bit_length()

    @property
    def bytes(self) -> int:
        """The size of a number in bytes."""
        return self.bits // 8
