"""Arrays at an address (64-bit integers, bytes, 16-bit integers, float32), and the stack memory of a kernel."""

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import FLOAT, INT8, INT16, INT64, Instruction, at, instruction


def _array(kind: ir.Type) -> Instruction:
    """The function that takes an address and returns the array of numbers of this type there."""
    return Instruction(lambda builder, address: at(builder, address, kind), (INT64,))


words, halves, flags, singles = map(_array, (INT64, INT16, INT8, FLOAT))
"""The 64-bit integers, the 16-bit integers, the bytes, and the float32 numbers at an address."""


def memory(size: int) -> Instruction:
    """A function that returns the address of `size` bytes on the stack, valid until the kernel returns."""

    @instruction()
    def function(builder):
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(INT8, size))
            place.align = 64
        return builder.ptrtoint(place, INT64)

    return function
