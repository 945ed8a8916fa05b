"""The matrix product on the tile registers of Intel's AMX: up to 32 rows times packed columns, sums in float32.

There are eight tile registers of 16 rows of 64 bytes. Packed weights have the same layout as for vectors: one register
has 16 rows, each with pairs of numbers for a vector of columns.

The speed has not been measured on a processor with AMX. Tests run these kernels on an interpreter of the instructions.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

from llvmlite import binding as llvm
from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.bfloat16 import AVX512BF16
from glassgate.engines.llvm_cpu.simd.blocking import SIDE
from glassgate.engines.llvm_cpu.simd.instructions import (
    INT8,
    INT16,
    INT32,
    INT64,
    WORDS,
    Instruction,
    at,
    instruction,
    stack_memory,
    words,
)
from glassgate.engines.llvm_cpu.simd.microkernel import shared
from glassgate.engines.llvm_cpu.simd.translate import inlined
from glassgate.engines.llvm_cpu.simd.transpose import transposed
from glassgate.engines.llvm_cpu.simd.vector import load_first

DEPTH, SIZE = 2 * SIDE, 64 * SIDE
"""The number of bfloat16 numbers in a row of a register, and the size of a register in bytes."""
SHAPES = ((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2))
"""The shapes of sums, in registers of rows by registers of columns. Four registers hold sums."""
STATE_SIZE = 128
"""The size in bytes of the register state of a kernel. It begins with the number of rows for which the registers are
configured. The sizes of the registers follow from byte 64 on."""


class Build:
    """Appends instructions of tile registers to a function.

    The instructions are inline assembly. With its intrinsics, LLVM allocates the registers, and for some processors it
    uses registers that have not been configured.

    Args:
        builder: appends the instructions.
        state: the address of the register state of the kernel.

    Attributes:
        state_size: the size of the register state in bytes.
    """

    state_size: ClassVar[int] = STATE_SIZE

    def __init__(self, builder: ir.IRBuilder, state: ir.Value) -> None:
        self.builder, self.state = builder, state

    def _append(self, name: str, registers: Sequence[int], *memory: ir.Value) -> None:
        """Append an instruction with these registers and, in `memory`, an address and any distance between rows."""
        place = ("", "($0)", "($0,$1,1)")[len(memory)]
        operands = [f"%tmm{register}" for register in reversed(registers)]
        operands = [*operands, place] if name == "tilestored" else [place, *operands]
        kind = ir.FunctionType(ir.VoidType(), [INT64] * len(memory))
        text, constraints = f"{name} {', '.join(filter(None, operands))}", [*["r"] * len(memory), "~{memory}"]
        llvm.initialize_native_asmparser()
        self.builder.asm(kind, text, ",".join(constraints), memory, side_effect=True)

    def configure(self, sizes: ir.Value) -> None:
        """Configure all registers with the sizes at an address, and set them to zero."""
        self._append("ldtilecfg", [], sizes)

    def zero(self, register: int) -> None:
        """Set a register to zero."""
        self._append("tilezero", [register])

    def load(self, register: int, address: ir.Value, pitch: ir.Value) -> None:
        """Load a register from rows that are `pitch` bytes apart."""
        self._append("tileloadd", [register], address, pitch)

    def store(self, register: int, address: ir.Value, pitch: ir.Value) -> None:
        """Store a register to rows that are `pitch` bytes apart."""
        self._append("tilestored", [register], address, pitch)

    def dot(self, sums: int, rows: int, columns: int) -> None:
        """Add the products of rows and columns to sums."""
        self._append("tdpbf16ps", [sums, rows, columns])

    def release(self) -> None:
        """Release all registers. The operating system then has fewer registers to save when it switches threads."""
        self._append("tilerelease", [])


BUILDS: dict[str, type[Build]] = {"amx": Build}
"""The class that appends the instructions, by the name in `Processor.tiles`."""


def _state(builder: ir.IRBuilder, tiles: str) -> ir.Value:
    """The address of the register state of the kernel. The first call allocates the state on the stack."""
    function = builder.function
    if not hasattr(function, "tiles"):
        with builder.goto_entry_block():
            size = BUILDS[tiles].state_size
            place = builder.alloca(ir.ArrayType(INT8, size))
            place.align = 64
            function.tiles = builder.ptrtoint(place, INT64)
            for offset in range(0, size, STATE_SIZE):
                builder.store(INT64(0), at(builder, builder.add(function.tiles, INT64(offset)), INT64))
    return function.tiles


def _configure(tiles: str) -> Instruction:
    """A function that configures all registers with the sizes in a state."""

    @instruction(INT64)
    def configure(builder, state):
        BUILDS[tiles](builder, state).configure(builder.add(state, INT64(64)))

    return configure


@instruction(INT64, INT64, INT64)
def copy_first(builder, to, source, live):
    """Copy the first `live` numbers of a row of a register, padded with zeros."""
    kind = ir.VectorType(INT16, DEPTH)
    builder.store(load_first(builder, at(builder, source, kind), 2, live), at(builder, to, kind)).align = 2


@instruction(INT64)
def turn(builder, address):
    """Transpose the 32-bit words of a register in memory."""
    kind = ir.VectorType(INT32, SIDE)
    places = [at(builder, builder.add(address, INT64(64 * k)), kind) for k in range(SIDE)]
    rows = [builder.load(place, align=4) for place in places]
    for place, row in zip(places, transposed(builder, rows, SIDE), strict=True):
        builder.store(row, place, align=4)


class AMX(AVX512BF16):
    """`MultiplicationMethod` for float32 numbers, with operands rounded to bfloat16, or split into two bfloat16 parts.

    The rows of a call are equally spaced in memory. If strided, each group of 16 rows has the layout of registers.
    """

    def microkernel(self, sums: int, long: bool = False, strided: bool = False) -> Any:
        """`MultiplicationMethod.microkernel`. `first` and `depth` count numbers; each has one or three terms."""
        tiles = self._processor.tiles
        body = _product(sums, tiles, strided, self._processor.terms)

        @instruction(WORDS, *[INT64] * 8)
        def product(builder, *operands):
            inlined(builder, body, _state(builder, tiles), *operands)

        return product

    def functions(self) -> dict[str, Any]:
        """`MultiplicationMethod.functions`."""
        tiles = self._processor.tiles

        @instruction()
        def release_registers(builder):
            BUILDS[tiles](builder, _state(builder, tiles)).release()

        layout = whole_sum, place_of_word, rows_of_tile, fill_registers, turn_registers, release_registers
        return super().functions() | {"transpose": self.transpose(all_rows=True)} | {f.__name__: f for f in layout}


@cache
def _product(vectors: int, tiles: str, strided: bool, terms: int) -> Any:
    configure, multiply, cut_rows = _configure(tiles), _multiply(vectors, tiles), stack_memory(2 * SIZE)

    def set_sizes(state, rows):
        """Configure registers 0, 1 and 4 for the first 16 rows, 2, 3 and 5 for the other rows, 6 and 7 for 16 rows.

        Without other rows, 2, 3 and 5 are configured as 0, 1 and 4.
        """
        sizes = words(state)
        if sizes[0] != rows:
            sizes[0], upper, lower = rows, min(rows, 16), rows - 16 if rows > 16 else rows
            sizes[8], sizes[9], sizes[10], sizes[11] = 1, 0, 0x0040004000400040, 0x0040004000400040
            sizes[12], sizes[13], sizes[15] = 0, 0, 0
            sizes[14] = upper * 0x0000000100000101 + lower * 0x0000010001010000 + 0x1010000000000000
            configure(state)

    def weights_of(packed, pitch, column):
        """The address of the weights of a vector of columns."""
        return packed + column // vectors * pitch * 4 + column % vectors * 64

    def product(state, left, first_row, first, packed, pitch, depth, out, rows, blocks):
        set_sizes(state, rows)
        first, depth = first * terms, depth * terms
        high = 2 if rows > 16 else 1
        upper, lower, row_pitch = left[first_row], left[first_row + 16 * (high - 1)], 64
        steps, step, rest = depth >> 5, 64, 0
        if strided:
            steps, step = (depth + 31) >> 5, 1024
        else:
            upper, lower = upper + 2 * first, lower + 2 * first
            if rows > 1:
                row_pitch = left[first_row + 1] - left[first_row]
            if depth & 31:
                rest = cut_rows()
                for row in range(rows):
                    copy_first(rest + row * 64, left[first_row + row] + 2 * (first + 32 * steps), depth & 31)
        columns, done = blocks * vectors, 0
        while done < columns:
            wide = min(columns - done, 4 // high)
            a, b = weights_of(packed, pitch, done), weights_of(packed, pitch, done + 1)
            c, d = weights_of(packed, pitch, done + 2), weights_of(packed, pitch, done + 3)
            to, out_pitch = out + done * 64, columns * 64
            multiply(state, high, wide, upper, lower, row_pitch, step, steps, rest, a, b, c, d, to, out_pitch)
            done += wide

    return product


def _multiply(vectors: int, tiles: str) -> Instruction:
    """A function that multiplies `high` registers of rows by `wide` registers of columns, for all shapes."""

    @instruction(*[INT64] * 15)
    def multiply(builder, state, high, wide, *others):
        done = builder.append_basic_block("multiplied")
        switch = builder.switch(builder.add(builder.mul(high, INT64(8)), wide), done)
        for rows, columns in SHAPES:
            case = builder.append_basic_block(f"registers_{rows}x{columns}")
            switch.add_case(INT64(8 * rows + columns), case)
            builder.position_at_end(case)
            name = f"registers_{rows}x{columns}x{vectors}"
            function, is_new = shared(builder.module, name, 1 + len(others))
            if is_new:
                inside = ir.IRBuilder(function.append_basic_block())
                build = BUILDS[tiles](inside, function.args[0])
                _multiply_registers(build, rows, columns, vectors, function.args[1:])
                inside.ret_void()
            builder.call(function, [state, *others])
            builder.branch(done)
        builder.position_at_end(done)

    return multiply


def _multiply_registers(build: Build, rows: int, columns: int, vectors: int, args: Sequence[ir.Value]) -> None:
    """Build the product for one shape. Registers 0 to 3 hold sums, 4 and 5 rows, 6 and 7 weights."""
    b, (upper, lower, pitch, step, steps, rest, *weights, out, out_pitch) = build.builder, args
    sums = [(r, c, 2 * r + c) for c in range(columns) for r in range(rows)]

    def add(rows_at: Sequence[ir.Value], pitch: ir.Value, k: ir.Value) -> None:
        for r in range(rows):
            build.load(4 + r, rows_at[r], pitch)
        down = b.mul(k, INT64(vectors * SIZE))
        for r, c, number in sums:
            if r == 0:
                build.load(6 + c % 2, b.add(weights[c], down), INT64(vectors * 64))
            build.dot(number, 4 + r, 6 + c % 2)

    for _, _, number in sums:
        build.zero(number)
    before, loop, done = b.block, b.append_basic_block("loop"), b.append_basic_block("done")
    b.cbranch(b.icmp_signed(">", steps, INT64(0)), loop, done)
    b.position_at_end(loop)
    k = b.phi(INT64)
    along = b.mul(k, step)
    add([b.add(upper, along), b.add(lower, along)], pitch, k)
    k.add_incoming(INT64(0), before)
    k_next = b.add(k, INT64(1))
    k.add_incoming(k_next, b.block)
    b.cbranch(b.icmp_signed("<", k_next, steps), loop, done)
    b.position_at_end(done)
    with b.if_then(b.icmp_signed("!=", rest, INT64(0))):
        add([rest, b.add(rest, INT64(SIZE))], INT64(64), steps)
    for r, c, number in sums:
        down = b.add(b.mul(out_pitch, INT64(SIDE * r)), INT64(64 * c))
        build.store(number, b.add(out, down), out_pitch)


def whole_sum(depth):
    """The length of packed columns in numbers, padded to whole rows of registers."""
    return (depth + 31) // 32 * 32


def place_of_word(first_unit, unit, capacity):
    """The offset in words of the first pair of a unit, in the block that begins with `first_unit`.

    A block has space for `capacity` pairs per unit. A row of a register has 16 pairs of one unit.
    """
    return first_unit * capacity + (unit - first_unit) * 16


def rows_of_tile(rows, most_rows):
    """The number of rows in the next call of the microkernel."""
    return min(rows, most_rows)


def fill_registers(packed, blocks, capacity, rows):
    """Pad the pairs of `rows` rows with zeros to the end of a register, block by block."""
    for block in range(blocks):
        for pair in range((rows + 1) // 2, (rows + 31) // 32 * 16):
            copy_first(packed + (block * capacity + pair) * 64, packed, 0)


def turn_registers(packed, blocks, capacity, rows):
    """Transpose pairs of rows to the rows of registers, block by block."""
    fill_registers(packed, blocks, capacity, rows)
    for block in range(blocks):
        for pair in range(0, (rows + 1) // 2, 16):
            turn(packed + (block * capacity + pair) * 64)
