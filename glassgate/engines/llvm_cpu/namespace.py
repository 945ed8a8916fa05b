"""The names that a printed kernel may use."""

import re
from functools import cache
from typing import Any

from glassgate.engines.llvm_cpu import atomics, runtime
from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.simd import mathematics, unpacked
from glassgate.engines.llvm_cpu.simd.addresses import memory as own_memory
from glassgate.engines.llvm_cpu.simd.bfloat16 import AVX512BF16
from glassgate.engines.llvm_cpu.simd.blocking import blocking
from glassgate.engines.llvm_cpu.simd.fma import FMA
from glassgate.engines.llvm_cpu.simd.int8 import Integers
from glassgate.engines.llvm_cpu.simd.method import Method
from glassgate.engines.llvm_cpu.simd.tiles import AMX
from glassgate.engines.llvm_cpu.simd.vector import memory


def method_of(processor: Processor, bits: int) -> Method:
    """How a processor multiplies numbers of so many bits."""
    if processor.tiles:
        return AMX(processor)
    if processor.bfloat16:
        return AVX512BF16(processor)
    if processor.integers and bits == 32:
        return Integers(processor)
    return FMA(processor, bits)


@cache
def _microkernel(processor: Processor, bits: int, sums: int, long: bool) -> Any:
    """The product with packed or unpacked weights. Kernels share it, so that a process compiles it once."""
    packed = method_of(processor, bits).microkernel(sums, long=long)
    return unpacked.microkernel(packed, bits, processor.lanes(bits), sums, processor.rounds)


def names(text: str, bits: int, processor: Processor) -> dict[str, Any]:
    """Everything that the text needs, for vectors of this type: mathematics by torch's names, all else with `_` too.

    In a cell's kernel only mathematics and the author's values have names without an underscore in front.
    """
    lanes, method = processor.lanes(bits), method_of(processor, bits)
    namespace: dict[str, Any] = {"LANES": lanes, "BYTES": bits // 8}
    namespace |= runtime.FUNCTIONS | atomics.FUNCTIONS | memory(bits, lanes)._asdict()
    for name, number in {*re.findall(r"\b_?((?:long_)?microkernel_(\d+))\(", text)}:
        sums = int(number)
        namespace[name] = _microkernel(processor, bits, sums, name.startswith("long"))
        namespace[f"MOST_ROWS_{sums}"], namespace[f"ROOM_{sums}"] = blocking(sums, processor)
    if "strided_microkernel(" in text:
        namespace["strided_microkernel"] = method.microkernel(1, long=True, strided=True)
        namespace["MOST_ROWS_1"], namespace["ROOM_1"] = blocking(1, processor)
    for size in {int(n) for n in re.findall(r"\bmemory_(\d+)\(", text)}:
        namespace[f"memory_{size}"] = own_memory(size)
    namespace |= method.functions()
    return namespace | {f"_{name}": value for name, value in namespace.items()} | mathematics.FUNCTIONS
