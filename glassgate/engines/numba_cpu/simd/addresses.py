"""Arrays at an address (64-bit integers, bytes, 16-bit integers, float32), and the stack memory of a kernel."""

from typing import Any

import numba.extending
from llvmlite import ir
from numba import types

from glassgate.engines.numba_cpu.simd.vector import INT64

intrinsic: Any = numba.extending.intrinsic


@intrinsic
def words(context: Any, address: Any) -> Any:
    """The 64-bit integers at an address."""
    return types.CPointer(types.int64)(types.int64), lambda c, b, s, a: b.inttoptr(a[0], INT64.as_pointer())


@intrinsic
def flags(context: Any, address: Any) -> Any:
    """The bytes at an address."""
    return types.CPointer(types.uint8)(types.int64), lambda c, b, s, a: b.inttoptr(a[0], ir.IntType(8).as_pointer())


@intrinsic
def halves(context: Any, address: Any) -> Any:
    """The 16-bit integers at an address."""
    return types.CPointer(types.uint16)(types.int64), lambda c, b, s, a: b.inttoptr(a[0], ir.IntType(16).as_pointer())


@intrinsic
def singles(context: Any, address: Any) -> Any:
    """The float32 numbers at an address."""
    return types.CPointer(types.float32)(types.int64), lambda c, b, s, a: b.inttoptr(a[0], ir.FloatType().as_pointer())


def memory(size: int) -> Any:
    """A function that returns the address of `size` bytes on the stack, valid until the kernel returns."""

    @intrinsic
    def function(context: Any) -> Any:
        def code(context, builder, sig, args):
            with builder.goto_entry_block():
                place = builder.alloca(ir.ArrayType(ir.IntType(8), size))
                place.align = 64
            return builder.ptrtoint(place, INT64)

        return types.int64(), code

    return function
