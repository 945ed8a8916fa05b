"""The sizes of a call, and the arithmetic of its matrix products on this processor."""

from typing import NamedTuple

from glassgate.engines.axes import FEATURES, PER_ROW, PROJECTED, UNITS, Axis
from glassgate.engines.plan import Sizes

INTEGERS = -1
"""A value of `KernelSizes.terms`: matrices are quantised to 8-bit integers."""


class KernelSizes(NamedTuple):
    """The sizes that, with the plan, determine the memory layout of a direction.

    Attributes:
        N: the largest batch size of a call, see `capacity`.
        D, H, P, bits: as in `Sizes`.
        terms: the arithmetic of matrix products. 0 is the dtype of the data, `INTEGERS` is 8-bit integers, and n > 0 is
            a sum of n products in bfloat16; see `Processor.terms`.
        input_terms: the arithmetic of the input GEMM, if it differs.
        has_few_inputs: whether the input has so few columns that each step computes its own input product. Such a pass
            keeps no values for a backward pass.
    """

    N: int
    D: int
    H: int
    P: int
    bits: int
    terms: int = 0
    input_terms: int | None = None
    has_few_inputs: bool = False

    @property
    def base_sizes(self) -> Sizes:
        """The sizes without the arithmetic."""
        return Sizes(*self[:5])

    @property
    def effective_input_terms(self) -> int:
        """The arithmetic of the input GEMM."""
        return self.terms if self.input_terms is None else self.input_terms

    def extent(self, axis: Axis) -> int:
        """Return the number of values along an axis of a row."""
        return {FEATURES: self.D, UNITS: self.H, PROJECTED: self.P, PER_ROW: 1}[axis]

    @staticmethod
    def capacity(N: int, terms: int) -> int:
        """Return the largest batch size of the calls that share a pass with a call of N sequences: a power of two.

        Calls of any batch size thus share few passes. Methods for bfloat16 are chosen for one batch size.
        """
        return N if terms or not N else 1 << (N - 1).bit_length()

    @property
    def bytes(self) -> int:
        """The size of a number in bytes."""
        return self.bits // 8
