"""The functions and constants that the source text of a kernel uses, by name."""

import re
from functools import cache
from typing import Any

from glassgate.engines.llvm_cpu import atomics, runtime
from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.simd import mathematics, transposed, unpacked
from glassgate.engines.llvm_cpu.simd.bfloat16 import BFloat16Products
from glassgate.engines.llvm_cpu.simd.blocking import blocking
from glassgate.engines.llvm_cpu.simd.fma import FMA
from glassgate.engines.llvm_cpu.simd.instructions import stack_memory
from glassgate.engines.llvm_cpu.simd.int8 import Integers
from glassgate.engines.llvm_cpu.simd.method import MultiplicationMethod
from glassgate.engines.llvm_cpu.simd.tiles import AMX
from glassgate.engines.llvm_cpu.simd.vector import memory_functions


def method_of(processor: Processor, bits: int) -> MultiplicationMethod:
    """Return the multiplication method of a processor for numbers of `bits` bits."""
    if processor.tiles:
        return AMX(processor)
    if processor.bfloat16:
        return BFloat16Products(processor)
    if processor.integers and bits == 32:
        return Integers(processor)
    return FMA(processor, bits)


@cache
def _microkernel(processor: Processor, bits: int, sums: int, long: bool, is_transposed: bool) -> Any:
    """Return the microkernel for packed and unpacked weights. It is cached, because all kernels use the same function.

    Args:
        processor: the processor that runs the kernel.
        bits: the size of a number.
        sums, long: as in `MultiplicationMethod.microkernel`.
        is_transposed: whether the microkernel multiplies with the transposed weights.
    """
    packed = method_of(processor, bits).microkernel(sums, long=long)
    lanes, rounds_operands = processor.lanes(bits), processor.rounds_operands
    if is_transposed:
        return transposed.microkernel(packed, bits, lanes, rounds_operands)
    return unpacked.microkernel(packed, bits, lanes, sums, rounds_operands)


def namespace_for(text: str, bits: int, processor: Processor) -> dict[str, Any]:
    """Return the functions and constants that the source of a kernel uses, by name.

    Mathematical functions have the names of their operations, or the names in `dialect.FUNCTION_NAMES`. Everything else
    has two names, with and without an underscore at the beginning. The kernels of cells use the name with the
    underscore, because it cannot collide with the names of values.

    Args:
        text: the source of a kernel.
        bits: the size of a number in a vector.
        processor: the processor that runs the kernel.
    """
    lanes, method = processor.lanes(bits), method_of(processor, bits)
    namespace: dict[str, Any] = {"LANES": lanes, "BYTES": bits // 8}
    namespace |= runtime.FUNCTIONS | atomics.FUNCTIONS | memory_functions(bits, lanes)._asdict()
    for name, number in {*re.findall(r"\b_?((?:long_)?(?:transposed_)?microkernel_(\d+))\(", text)}:
        sums = int(number)
        namespace[name] = _microkernel(processor, bits, sums, name.startswith("long"), "transposed" in name)
        namespace[f"MAX_ROWS_{sums}"], namespace[f"MAX_AREA_{sums}"] = blocking(sums, processor)
    if "strided_microkernel(" in text:
        namespace["strided_microkernel"] = method.microkernel(1, long=True, strided=True)
        namespace["MAX_ROWS_1"], namespace["MAX_AREA_1"] = blocking(1, processor)
    for size in {int(n) for n in re.findall(r"\bmemory_(\d+)\(", text)}:
        namespace[f"memory_{size}"] = stack_memory(size)
    namespace |= method.functions()
    return namespace | {f"_{name}": value for name, value in namespace.items()} | mathematics.FUNCTIONS
