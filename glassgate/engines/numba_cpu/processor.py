"""What a kernel must fit: the processor's vector registers, and its instructions for bfloat16."""

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
"""Rows that need no tile registers: a product of fewer waits for weights, and these take a row at a time as fast."""


class Processor(NamedTuple):
    """The bytes of a vector register, how many of them there are, and how it multiplies numbers rounded to bfloat16."""

    width: int
    registers: int
    bfloat16: str = ""
    """By "avx512bf16", its instructions; "emulated", by several others, for tests; empty where that is too slow."""
    tiles: str = ""
    """Whether on tile registers, 16 rows at once: by "amx", its instructions, or "emulated", for tests."""
    integers: str = ""
    """How it multiplies integers of 8 bits: by "vnni", its instructions; "madd", several others; "portable"; or
    "emulated", which is portable with the memory layout of "vnni", for tests. Empty for other numbers."""
    terms: int = 1
    """Of how many products of bfloat16 one of two numbers is the sum: 1 where both are rounded; 3 where each is the sum
    of a high number and a low one, and the product of the low ones is left out."""

    @property
    def whole(self) -> "Processor":
        """The same for products of numbers as they are."""
        return self._replace(bfloat16="", tiles="", integers="")

    @property
    def rounds(self) -> bool:
        """Whether products are of rounded numbers, bfloat16 or integers."""
        return bool(self.bfloat16 or self.integers)

    def of_rows(self, rows: int) -> "Processor":
        """The same for products of so many rows each: of few, tile registers would stay nearly empty."""
        return self._replace(tiles="") if rows <= FEW_ROWS else self

    def lanes(self, bits: int) -> int:
        """How many numbers fit a register."""
        return self.width * 8 // bits

    def rounded_pitch(self, width: int) -> int:
        """How many bytes rows of so many numbers are apart, each in whole registers of rounded numbers."""
        if self.integers:
            return HEADER + -(-width // self.width) * self.width
        return -(-2 * width // self.width) * self.width * self.terms


_pretended: list[Processor] = []


def host() -> Processor:
    """This machine's."""
    return _pretended[-1] if _pretended else _detected()


@contextmanager
def pretend(processor: Processor) -> Iterator[None]:
    """Kernels inside the `with` are for another processor, with narrower or fewer registers than this one's."""
    _pretended.append(processor)
    try:
        yield
    finally:
        _pretended.pop()


def with_integers(processor: Processor) -> Processor:
    """The same for products of integers of 8 bits."""
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
