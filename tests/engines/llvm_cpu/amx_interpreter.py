"""An interpreter of the AMX instructions for any processor: eight tile registers in a kernel's memory.

It follows Intel's manual (Instruction Set Extensions Programming Reference, 319433, chapter 3). An operation that
faults on the processor ends the process with a message. Kernels for a `Processor` with `tiles=INTERPRETED` call it.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import (
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    Instruction,
    array_at,
    call,
    flags,
    instruction,
    stack_memory,
    words,
)
from glassgate.engines.llvm_cpu.simd.microkernel import shared_function
from glassgate.engines.llvm_cpu.simd.tiles import STATE_SIZE, TILE_INSTRUCTIONS, TileInstructions
from glassgate.engines.llvm_cpu.simd.translate import inline

halves, singles = array_at(INT16), array_at(FLOAT)
"""The 16-bit integers and the float32 numbers at an address."""

AT, REGISTERS = 128, 192
"""The offsets of the register sizes and of the registers in the state of a kernel."""
SIZE = 64 + 8 * 1024
"""The number of bytes that the interpreter adds to the state."""
SMALLEST = 2.0**-126
"""The smallest normal number of float32."""


def stop(message: str) -> Instruction:
    """A function that prints a message and ends the process."""

    @instruction()
    def function(builder):
        text = bytearray(f"{message}\n".encode())
        constant = ir.Constant(ir.ArrayType(INT8, len(text)), text)
        place = ir.GlobalVariable(builder.module, constant.type, builder.module.get_unique_name("message"))
        place.linkage, place.global_constant, place.initializer = "internal", True, constant
        call(builder, "write", INT64, INT32(2), builder.bitcast(place, INT8.as_pointer()), INT64(len(text)))
        call(builder, "abort", ir.VoidType())

    return function


@instruction(FLOAT, FLOAT, FLOAT)
def fma(builder, a, b, c):
    """a * b + c, rounded once."""
    return call(builder, "llvm.fma.f32", FLOAT, a, b, c)


@instruction(INT64)
def single(builder, bits):
    """A bfloat16 number as float32."""
    return builder.bitcast(builder.shl(builder.trunc(bits, INT32), INT32(16)), FLOAT)


@instruction(FLOAT)
def flushed(builder, x):
    """The number, or zero of the same sign if it is denormal."""
    size = call(builder, "llvm.fabs.f32", FLOAT, x)
    return builder.select(builder.fcmp_ordered("<", size, FLOAT(SMALLEST)), builder.fmul(x, FLOAT(0.0)), x)


unconfigured = stop("AMX: a tile register is used before ldtilecfg, or after tilerelease")
bad_sizes = stop("AMX: ldtilecfg is given sizes that no tile registers have")
bad_shapes = stop("AMX: tdpbf16ps multiplies tile registers whose sizes do not fit")


def ldtilecfg(state, address):
    """Set the sizes of all registers from memory, and set the registers to zero."""
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


def tilerelease(state):
    """Release all registers. They then have no sizes."""
    words(state + AT)[0] = 0


def size(state, number):
    """The number of rows of a register, and the number of bytes of a row."""
    rows = flags(state + AT + 48)[number]
    if words(state + AT)[0] != 1 or rows == 0:
        unconfigured()
    return rows, halves(state + AT + 16)[number]


def clear(state, number):
    """Set the whole memory of a register to zero."""
    register = words(state + REGISTERS + 1024 * number)
    for k in range(128):
        register[k] = 0


def tilezero(state, number):
    """Set a register to zero."""
    size(state, number)
    clear(state, number)


def tileloadd(state, address, pitch, number):
    """Load rows from memory, padded with zeros."""
    rows, width = size(state, number)
    clear(state, number)
    for row in range(rows):
        to, source = halves(state + REGISTERS + 1024 * number + 64 * row), halves(address + row * pitch)
        for k in range(width // 2):
            to[k] = source[k]


def tilestored(state, address, pitch, number):
    """Store rows to memory."""
    rows, width = size(state, number)
    for row in range(rows):
        source, to = halves(state + REGISTERS + 1024 * number + 64 * row), halves(address + row * pitch)
        for k in range(width // 2):
            to[k] = source[k]


_totals = stack_memory(128)


def tdpbf16ps(state, sums, left, right):
    """Add the products of pairs to each sum. The products of first and of second numbers are summed separately."""
    rows, width = size(state, sums)
    left_rows, left_width = size(state, left)
    pairs, right_width = size(state, right)
    if left_rows != rows or left_width != 4 * pairs or right_width != width:
        bad_shapes()
    first, second = singles(_totals()), singles(_totals() + 64)
    for row in range(rows):
        for n in range(16):
            first[n], second[n] = 0.0, 0.0
        x = halves(state + REGISTERS + 1024 * left + 64 * row)
        for k in range(pairs):
            y = halves(state + REGISTERS + 1024 * right + 64 * k)
            a, b = flushed(single(x[2 * k])), flushed(single(x[2 * k + 1]))
            for n in range(16):
                first[n] = flushed(fma(a, flushed(single(y[2 * n])), first[n]))
                second[n] = flushed(fma(b, flushed(single(y[2 * n + 1])), second[n]))
        total = singles(state + REGISTERS + 1024 * sums + 64 * row)
        for n in range(width // 4):
            total[n] = flushed(flushed(total[n]) + flushed(first[n] + second[n]))


_FUNCTIONS: tuple[Callable[..., Any], ...] = ldtilecfg, tileloadd, tilestored, tilezero, tilerelease, tdpbf16ps
FUNCTIONS: dict[str, Any] = {f.__name__: f for f in _FUNCTIONS}
"""The instructions by name."""


class InterpretedInstructions(TileInstructions):
    """`TileInstructions` with calls of the interpreter, whose state follows the register state in memory."""

    state_size = STATE_SIZE + SIZE

    def _append(self, name: str, registers: Sequence[int], *memory: ir.Value) -> None:
        values = [self.register_state, *memory, *map(INT64, registers)]
        function, is_new = shared_function(self.builder.module, name, len(values))
        if is_new:
            entry, begin = (function.append_basic_block(block) for block in ("entry", "begin"))
            body_builder = ir.IRBuilder(entry)
            body_builder.branch(begin)
            body_builder.position_at_end(begin)
            inline(body_builder, FUNCTIONS[name], *function.args)
            body_builder.ret_void()
        self.builder.call(function, values)


INTERPRETED = f"interpreted-{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]}"
"""The method `Processor.tiles` of the interpreter. It contains a digest, because compiled kernels are cached."""
TILE_INSTRUCTIONS[INTERPRETED] = InterpretedInstructions
