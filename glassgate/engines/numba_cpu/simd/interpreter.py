"""An interpreter of the AMX instructions for any processor: eight tile registers in a kernel's memory.

It follows Intel's manual (Instruction Set Extensions Programming Reference, 319433, chapter 3). An operation that
faults on the processor ends the process with a message.
"""

from collections.abc import Sequence
from typing import Any

import numba
import numba.extending
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glassgate.engines.numba_cpu.simd.addresses import flags, halves, memory, singles, words
from glassgate.engines.numba_cpu.simd.vector import INT32, INT64

intrinsic: Any = numba.extending.intrinsic
compiled: Any = numba.njit(error_model="numpy")

AT, REGISTERS = 128, 192
"""The offsets of the register sizes and of the registers in the state of a kernel."""
SIZE = 64 + 8 * 1024
"""The number of bytes that the interpreter adds to the state."""


@intrinsic
def apart(context):
    """Prevent inlining of the calling function, which would multiply the compile time."""

    def code(context, builder, sig, args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), code


def stop(message: str) -> Any:
    """A function that prints a message and ends the process."""

    @intrinsic
    def function(context):
        def code(context, builder, sig, args):
            text = f"{message}\n".encode()
            place = context.insert_const_string(builder.module, text.decode())
            kind = ir.FunctionType(INT64, [INT32, place.type, INT64])
            write = cgutils.get_or_insert_function(builder.module, kind, "write")
            builder.call(write, [INT32(2), place, INT64(len(text))])
            abort = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), []), "abort")
            builder.call(abort, [])
            return context.get_dummy_value()

        return types.void(), code

    return function


@intrinsic
def fma(context, a, b, c):
    """a * b + c, rounded once."""

    def code(context, builder, sig, args):
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()] * 3)
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.f32"), args)

    return types.float32(types.float32, types.float32, types.float32), code


@intrinsic
def single(context, bits):
    """A bfloat16 number as float32."""

    def code(context, builder, sig, args):
        word = builder.shl(builder.zext(args[0], INT32), INT32(16))
        return builder.bitcast(word, ir.FloatType())

    return types.float32(types.uint16), code


SMALLEST = numba.float32(2.0**-126)


@compiled
def flushed(x):
    """The number, or zero of the same sign if it is denormal."""
    return x * numba.float32(0.0) if abs(x) < SMALLEST else x


unconfigured = stop("AMX: a tile register is used before ldtilecfg, or after tilerelease")
bad_sizes = stop("AMX: ldtilecfg is given sizes that no tile registers have")
bad_shapes = stop("AMX: tdpbf16ps multiplies tile registers whose sizes do not fit")


@compiled
def ldtilecfg(state, address):
    """Set the sizes of all registers from memory, and set the registers to zero."""
    apart()
    new, current = words(address), words(state + AT)
    if new[0] != 1 or new[1] != 0 or new[4] != 0 or new[5] != 0 or new[7] != 0:
        bad_sizes()
    for number in range(8):
        width, rows = halves(address + 16)[number], flags(address + 48)[number]
        if width > 64 or width % 4 != 0 or rows > 16 or (width == 0) != (rows == 0):
            bad_sizes()
        clear(state, number)
    for k in range(8):
        current[k] = new[k]


@compiled
def tilerelease(state):
    """Release all registers. They then have no sizes."""
    words(state + AT)[0] = 0


@compiled
def size(state, number):
    """The number of rows of a register, and the number of bytes of a row."""
    rows = flags(state + AT + 48)[number]
    if words(state + AT)[0] != 1 or rows == 0:
        unconfigured()
    return rows, halves(state + AT + 16)[number]


@compiled
def clear(state, number):
    """Set the whole memory of a register to zero."""
    register = words(state + REGISTERS + 1024 * number)
    for k in range(128):
        register[k] = 0


@compiled
def tilezero(state, number):
    """Set a register to zero."""
    apart()
    size(state, number)
    clear(state, number)


@compiled
def tileloadd(state, address, pitch, number):
    """Load rows from memory, padded with zeros."""
    apart()
    rows, width = size(state, number)
    clear(state, number)
    for row in range(rows):
        to, source = halves(state + REGISTERS + 1024 * number + 64 * row), halves(address + row * pitch)
        for k in range(width // 2):
            to[k] = source[k]


@compiled
def tilestored(state, address, pitch, number):
    """Store rows to memory."""
    apart()
    rows, width = size(state, number)
    for row in range(rows):
        source, to = halves(state + REGISTERS + 1024 * number + 64 * row), halves(address + row * pitch)
        for k in range(width // 2):
            to[k] = source[k]


_totals = memory(128)


@compiled
def tdpbf16ps(state, sums, left, right):
    """Add the products of pairs to each sum. The products of first and of second numbers are summed separately."""
    apart()
    rows, width = size(state, sums)
    if size(state, left) != (rows, 4 * size(state, right)[0]) or size(state, right)[1] != width:
        bad_shapes()
    first, second = singles(_totals()), singles(_totals() + 64)
    for row in range(rows):
        for n in range(16):
            first[n], second[n] = 0.0, 0.0
        x = halves(state + REGISTERS + 1024 * left + 64 * row)
        for k in range(size(state, right)[0]):
            y = halves(state + REGISTERS + 1024 * right + 64 * k)
            a, b = flushed(single(x[2 * k])), flushed(single(x[2 * k + 1]))
            for n in range(16):
                first[n] = flushed(fma(a, flushed(single(y[2 * n])), first[n]))
                second[n] = flushed(fma(b, flushed(single(y[2 * n + 1])), second[n]))
        total = singles(state + REGISTERS + 1024 * sums + 64 * row)
        for n in range(width // 4):
            total[n] = flushed(flushed(total[n]) + flushed(first[n] + second[n]))


_BY_NAME: dict[str, Any] = {f.__name__: f for f in (ldtilecfg, tileloadd, tilestored, tilezero, tilerelease, tdpbf16ps)}


def call(context: Any, builder: ir.IRBuilder, name: str, values: Sequence[ir.Value]) -> None:
    """Append an instruction. Its operands are the state of the kernel, addresses, and numbers of registers."""
    sig = types.void(*[types.int64] * len(values))
    compiled = context.compile_subroutine(builder, _BY_NAME[name].py_func, sig)
    context.call_internal_no_propagate(builder, compiled.fndesc, sig, values)
