"""What a kernel must fit: the processor's vector registers. Tests put others in its place."""

from functools import cache
from typing import NamedTuple

import llvmlite.binding as llvm


class Processor(NamedTuple):
    """The bytes of a vector register and how many of them there are."""

    width: int
    registers: int

    def lanes(self, bits: int) -> int:
        """How many numbers fit a register."""
        return self.width * 8 // bits


@cache
def host() -> Processor:
    """This machine's."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return Processor(64, 32)
    if features.get("avx2"):
        return Processor(32, 16)
    return Processor(16, 32 if features.get("neon") else 16)
