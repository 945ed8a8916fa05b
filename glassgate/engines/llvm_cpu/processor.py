"""The properties of a processor that kernels depend on: vector registers and instructions for matrix products."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import llvmlite.binding as llvm
import torch

INT8_OFFSET = 128
"""The number that is added to the integers of a row for VNNI, which requires unsigned integers."""
OFFSET_METHODS = ("vnni", "emulated")
"""The integer methods that add `INT8_OFFSET` to the integers of rows."""
ROW_HEADER = 64
"""The size in bytes of the header of a row of 8-bit integers. It contains the scale of the row."""
FEW_ROWS = 2
"""Up to this number of rows, tile registers are not used: the speed is limited by reading the weights."""


class Processor(NamedTuple):
    """The width of a vector register in bytes, the number of vector registers, and the method of multiplication."""

    width: int
    registers: int
    bfloat16: str = ""
    """The method for products of bfloat16 pairs: "avx512bf16" for AVX512-BF16 instructions; "emulated" for other
    instructions, for tests; empty if products are not in bfloat16."""
    tiles: str = ""
    """The instructions for tile registers, a key of `tiles.TILE_INSTRUCTIONS`; empty without tile registers."""
    integers: str = ""
    """The method for products of 8-bit integers: "vnni" for VNNI instructions; "madd" for multiply-add instructions;
    "portable" for any processor; "emulated" for the portable method with the memory layout of "vnni", for tests; empty
    if products are not in integers."""
    terms: int = 1
    """The number of bfloat16 products per product of two numbers: 1 if both are rounded; 3 if each is the sum of a high
    and a low part, and the product of the low parts is omitted."""
    optimised: bool = True
    """Whether machine code is optimised. Without, for tests, kernels are compiled in a quarter of the time."""

    @property
    def multiplies_by_lanes(self) -> bool:
        """Whether an instruction multiplies a vector by one lane of another. Of the supported processors, ARM's do."""
        return (self.width, self.registers) == (16, 32)

    @property
    def full_precision(self) -> "Processor":
        """The same processor with products that do not round their operands."""
        return self._replace(bfloat16="", tiles="", integers="")

    @property
    def rounds_operands(self) -> bool:
        """Whether products round their operands to bfloat16 or integers."""
        return bool(self.bfloat16 or self.integers)

    def of_rows(self, rows: int) -> "Processor":
        """Return the same processor, without tile registers if products have at most `FEW_ROWS` rows."""
        return self._replace(tiles="") if rows <= FEW_ROWS else self

    def lanes(self, bits: int) -> int:
        """Return the number of lanes of a vector register for numbers of this size."""
        return self.width * 8 // bits

    def rounded_pitch(self, width: int) -> int:
        """Return the pitch in bytes of rows of `width` rounded numbers. Each row is padded to whole registers."""
        if self.integers:
            return ROW_HEADER + -(-width // self.width) * self.width
        return -(-2 * width // self.width) * self.width * self.terms


_pretended_processors: list[Processor] = []


def host() -> Processor:
    """Return the processor of this machine, or the one that `pretend` has set."""
    return _pretended_processors[-1] if _pretended_processors else _detect_host()


@contextmanager
def pretend(processor: Processor) -> Iterator[None]:
    """In the `with` block, compile for another processor, which must not have more or wider registers than this one."""
    _pretended_processors.append(processor)
    try:
        yield
    finally:
        _pretended_processors.pop()


def with_integers(processor: Processor) -> Processor:
    """Return the same processor for products of 8-bit integers."""
    features = llvm.get_host_cpu_features()
    instructions = {16: "avxvnni ssse3", 32: "avxvnni avx2", 64: "avx512vnni avx512bw"}[processor.width].split()
    names = [name for name, feature in zip(("vnni", "madd"), instructions, strict=True) if features.get(feature)]
    return processor.full_precision._replace(integers=[*names, "portable"][0])


@cache
def torch_multiplies_with_mkl() -> bool:
    """Whether torch multiplies matrices with MKL on a processor of Intel, for which MKL has its fastest code.

    On one with AVX-512, MKL takes 0.7 to 1.0 of the time of our kernels. On one of AMD, it takes 1.3 to 2.6 of it.
    """
    return torch.backends.mkl.is_available() and not llvm.get_host_cpu_name().startswith(_AMD)


_AMD = ("znver", "bdver", "btver", "amdfam", "barcelona", "k8", "opteron", "athlon")
"""The first letters of LLVM's names of the processors of AMD."""


@cache
def _detect_host() -> Processor:
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return Processor(64, 32, "avx512bf16" if features.get("avx512bf16") else "")
    if features.get("avx2"):
        return Processor(32, 16)
    # LLVM lists no features on macOS. Every 64-bit ARM processor has NEON.
    return Processor(16, 32 if platform.machine().lower() in ("arm64", "aarch64") else 16)
