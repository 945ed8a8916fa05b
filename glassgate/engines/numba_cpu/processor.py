"""The properties of a processor that kernels depend on: vector registers and instructions for matrix products."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import llvmlite.binding as llvm

OFFSET = 128
"""Added to rows for VNNI, which multiplies them as unsigned integers."""
SHIFTED = ("vnni", "emulated")
"""The integer products whose rows are shifted by `OFFSET`."""
HEADER = 64
"""Bytes in front of a row of integers of 8 bits, which hold its scale."""
FEW_ROWS = 2
"""The largest number of rows for which tile registers are not used: reading the weights limits such a product."""


class Processor(NamedTuple):
    """The width of a vector register in bytes, the number of vector registers, and the method of multiplication."""

    width: int
    registers: int
    bfloat16: str = ""
    """Pairs of bfloat16: "avx512bf16" by its instructions; "emulated" by several others, for tests; empty for other
    numbers."""
    tiles: str = ""
    """Tile registers of 16 rows: "amx" by its instructions; "emulated" by an interpreter, for tests; empty without
    them."""
    integers: str = ""
    """Integers of 8 bits: "vnni" by its instructions; "madd" by several others; "portable"; "emulated", which is
    portable with the memory layout of "vnni", for tests; empty for other numbers."""
    terms: int = 1
    """The number of bfloat16 products per product of two numbers: 1 if both are rounded; 3 if each is the sum of a high
    and a low part, and the product of the low parts is left out."""

    @property
    def whole(self) -> "Processor":
        """The same processor for products of numbers that are not rounded."""
        return self._replace(bfloat16="", tiles="", integers="")

    @property
    def rounds(self) -> bool:
        """Whether products round their operands to bfloat16 or integers."""
        return bool(self.bfloat16 or self.integers)

    def of_rows(self, rows: int) -> "Processor":
        """The same processor for products of so many rows each: few rows leave tile registers nearly empty."""
        return self._replace(tiles="") if rows <= FEW_ROWS else self

    def lanes(self, bits: int) -> int:
        """The number of numbers in a vector register."""
        return self.width * 8 // bits

    def rounded_pitch(self, width: int) -> int:
        """The distance in bytes of rows of so many rounded numbers, each padded to whole registers."""
        if self.integers:
            return HEADER + -(-width // self.width) * self.width
        return -(-2 * width // self.width) * self.width * self.terms


_pretended: list[Processor] = []


def host() -> Processor:
    """The processor of this machine."""
    return _pretended[-1] if _pretended else _detected()


@contextmanager
def pretend(processor: Processor) -> Iterator[None]:
    """Compile kernels inside the `with` for another processor, whose registers are no wider or more than this one's."""
    _pretended.append(processor)
    try:
        yield
    finally:
        _pretended.pop()


def with_integers(processor: Processor) -> Processor:
    """The same processor for products of integers of 8 bits."""
    features = llvm.get_host_cpu_features()
    instructions = {16: "avxvnni ssse3", 32: "avxvnni avx2", 64: "avx512vnni avx512bw"}[processor.width].split()
    names = [name for name, feature in zip(("vnni", "madd"), instructions, strict=True) if features.get(feature)]
    return processor.whole._replace(integers=[*names, "portable"][0])


@cache
def _detected() -> Processor:
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return Processor(64, 32, "avx512bf16" if features.get("avx512bf16") else "")
    if features.get("avx2"):
        return Processor(32, 16)
    return Processor(16, 32 if features.get("neon") else 16)
