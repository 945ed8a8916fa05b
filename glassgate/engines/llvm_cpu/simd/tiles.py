"""The matrix product on the tile registers of Intel's AMX: up to 32 rows times packed columns, summed in float32.

There are eight tile registers, each with 16 rows of 64 bytes. Weights are packed as for kernels on vector registers: a
tile register holds 16 rows, and a row holds a pair of numbers for each column of one vector.

Tests run these kernels on an interpreter of the instructions, and on the processor if it has AMX. The speed is in
`docs/engines.md`.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

from llvmlite import binding as llvm
from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.bfloat16 import BFloat16Products
from glassgate.engines.llvm_cpu.simd.blocking import SIDE
from glassgate.engines.llvm_cpu.simd.instructions import (
    INT8,
    INT16,
    INT32,
    INT64,
    INT64_POINTER,
    Instruction,
    instruction,
    pointer_at,
    stack_memory,
    words,
)
from glassgate.engines.llvm_cpu.simd.microkernel import shared_function
from glassgate.engines.llvm_cpu.simd.translate import inline
from glassgate.engines.llvm_cpu.simd.transpose import transpose_vectors
from glassgate.engines.llvm_cpu.simd.vector import load_first

DEPTH, REGISTER_BYTES = 2 * SIDE, 64 * SIDE
"""The number of bfloat16 numbers in a row of a register, and the size of a register in bytes."""
SHAPES = ((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2))
"""The shapes of a block of sums, in registers: (rows, columns). A block has at most four registers."""
STATE_SIZE = 128
"""The size in bytes of the register state of a kernel.

The first word is the number of rows for which the registers are configured. Byte 64 is the first byte of the operand of
`ldtilecfg`.
"""


class TileInstructions:
    """Appends instructions of tile registers to a function.

    The instructions are inline assembly. With LLVM's intrinsics, LLVM would allocate the registers, and for some
    processors it allocates registers that have not been configured.

    Args:
        builder: appends the instructions.
        register_state: the address of the register state of the kernel, see `STATE_SIZE`.

    Attributes:
        state_size: the size of the register state in bytes.
    """

    state_size: ClassVar[int] = STATE_SIZE

    def __init__(self, builder: ir.IRBuilder, register_state: ir.Value) -> None:
        self.builder, self.register_state = builder, register_state

    def _append(self, name: str, registers: Sequence[int], *memory: ir.Value) -> None:
        """Append an instruction.

        Args:
            name: the mnemonic.
            registers: the numbers of the tile registers, the destination first.
            memory: nothing if all operands are registers; otherwise the address of the operand in memory and, if it has
                rows, the distance between them in bytes.
        """
        memory_operand = ("", "($0)", "($0,$1,1)")[len(memory)]
        operands = [f"%tmm{register}" for register in reversed(registers)]
        operands = [*operands, memory_operand] if name == "tilestored" else [memory_operand, *operands]
        kind = ir.FunctionType(ir.VoidType(), [INT64] * len(memory))
        text, constraints = f"{name} {', '.join(filter(None, operands))}", [*["r"] * len(memory), "~{memory}"]
        llvm.initialize_native_asmparser()
        self.builder.asm(kind, text, ",".join(constraints), memory, side_effect=True)

    def configure(self, sizes: ir.Value) -> None:
        """Configure all registers with the sizes at an address, and set the registers to zero."""
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
        """Multiply the registers `rows` and `columns`, and add the result to the register `sums`."""
        self._append("tdpbf16ps", [sums, rows, columns])

    def release(self) -> None:
        """Release all registers. The operating system then has fewer registers to save when it switches threads."""
        self._append("tilerelease", [])


TILE_INSTRUCTIONS: dict[str, type[TileInstructions]] = {"amx": TileInstructions}
"""The class that appends the instructions, by the name in `Processor.tiles`."""


def _register_state(builder: ir.IRBuilder, tiles: str) -> ir.Value:
    """Return the address of the register state of the kernel. The first call allocates it on the kernel's stack."""
    function = builder.function
    if not hasattr(function, "register_state"):
        with builder.goto_entry_block():
            size = TILE_INSTRUCTIONS[tiles].state_size
            memory = builder.alloca(ir.ArrayType(INT8, size))
            memory.align = 64
            function.register_state = builder.ptrtoint(memory, INT64)
            for offset in range(0, size, STATE_SIZE):
                builder.store(INT64(0), pointer_at(builder, builder.add(function.register_state, INT64(offset)), INT64))
    return function.register_state


def _configure(tiles: str) -> Instruction:
    """Return a function that configures all registers with the sizes in a register state."""

    @instruction(INT64)
    def configure(builder, register_state):
        TILE_INSTRUCTIONS[tiles](builder, register_state).configure(builder.add(register_state, INT64(64)))

    return configure


@instruction(INT64, INT64, INT64)
def copy_first(builder, to, source, live):
    """Copy the first `live` bfloat16 numbers of a row of a register, and pad the row with zeros."""
    kind = ir.VectorType(INT16, DEPTH)
    builder.store(
        load_first(builder, pointer_at(builder, source, kind), 2, live), pointer_at(builder, to, kind)
    ).align = 2


@instruction(INT64)
def transpose_register(builder, address):
    """Transpose the 32-bit words of a register's content in memory."""
    kind = ir.VectorType(INT32, SIDE)
    pointers = [pointer_at(builder, builder.add(address, INT64(64 * k)), kind) for k in range(SIDE)]
    rows = [builder.load(pointer, align=4) for pointer in pointers]
    for pointer, row in zip(pointers, transpose_vectors(builder, rows, SIDE), strict=True):
        builder.store(row, pointer, align=4)


class AMX(BFloat16Products):
    """`MultiplicationMethod` for float32 numbers, with operands rounded to bfloat16, or split into two bfloat16 parts.

    Left operands are equally spaced rows or, if `strided`, groups of 16 rows. A group is stored as adjacent tile
    registers of 1,024 bytes.
    """

    def microkernel(self, sums: int, long: bool = False, strided: bool = False) -> Any:
        """See `MultiplicationMethod.microkernel`.

        The arguments `first` and `depth` of the result count float32 numbers. Each number is stored as one bfloat16
        term, or as the three terms of `bfloat16.py`.
        """
        tiles = self._processor.tiles
        body = _product(sums, tiles, strided, self._processor.terms)

        @instruction(INT64_POINTER, *[INT64] * 8)
        def product(builder, *operands):
            inline(builder, body, _register_state(builder, tiles), *operands)

        return product

    def functions(self) -> dict[str, Any]:
        """See `MultiplicationMethod.functions`."""
        tiles = self._processor.tiles

        @instruction()
        def release_registers(builder):
            TILE_INSTRUCTIONS[tiles](builder, _register_state(builder, tiles)).release()

        layout = padded_depth, word_offset, microkernel_rows, pad_registers, transpose_registers, release_registers
        return super().functions() | {"transpose": self.transpose(all_rows=True)} | {f.__name__: f for f in layout}


@cache
def _product(vectors: int, tiles: str, strided: bool, terms: int) -> Any:
    configure, multiply, allocate_remainder = (
        _configure(tiles),
        _multiply(vectors, tiles),
        stack_memory(2 * REGISTER_BYTES),
    )

    def set_sizes(register_state, rows):
        """Configure registers 0, 1 and 4 for the first 16 rows, 2, 3 and 5 for the other rows, 6 and 7 for 16 rows.

        If there are at most 16 rows, 2, 3 and 5 are configured like 0, 1 and 4.
        """
        state = words(register_state)
        if state[0] != rows:
            state[0], upper_rows, lower_rows = rows, min(rows, 16), rows - 16 if rows > 16 else rows
            state[8], state[9], state[10], state[11] = 1, 0, 0x0040004000400040, 0x0040004000400040
            state[12], state[13], state[15] = 0, 0, 0
            state[14] = upper_rows * 0x0000000100000101 + lower_rows * 0x0000010001010000 + 0x1010000000000000
            configure(register_state)

    def weights_at(packed, pitch, column):
        """Return the address of the weights of one vector of columns."""
        return packed + column // vectors * pitch * 4 + column % vectors * 64

    def product(register_state, left, first_row, first, packed, pitch, depth, out, rows, blocks):
        set_sizes(register_state, rows)
        first, depth = first * terms, depth * terms
        row_registers = 2 if rows > 16 else 1
        upper, lower, row_pitch = left[first_row], left[first_row + 16 * (row_registers - 1)], 64
        steps, step_bytes, remainder = depth >> 5, 64, 0
        if strided:
            steps, step_bytes = (depth + 31) >> 5, 1024
        else:
            upper, lower = upper + 2 * first, lower + 2 * first
            if rows > 1:
                row_pitch = left[first_row + 1] - left[first_row]
            if depth & 31:
                remainder = allocate_remainder()
                for row in range(rows):
                    copy_first(remainder + row * 64, left[first_row + row] + 2 * (first + 32 * steps), depth & 31)
        columns, column = blocks * vectors, 0
        while column < columns:
            column_registers = min(columns - column, 4 // row_registers)
            a, b = weights_at(packed, pitch, column), weights_at(packed, pitch, column + 1)
            c, d = weights_at(packed, pitch, column + 2), weights_at(packed, pitch, column + 3)
            to, to_pitch = out + column * 64, columns * 64
            multiply(
                register_state, row_registers, column_registers,
                upper, lower, row_pitch, step_bytes, steps, remainder, a, b, c, d, to, to_pitch,
            )  # fmt: skip
            column += column_registers

    return product


def _multiply(vectors: int, tiles: str) -> Instruction:
    """Return a function that runs the code of `_multiply_registers` for the shape of a product.

    multiply(register_state, row_registers, column_registers, ...): the shape is one of `SHAPES`; the other arguments
    are those of `_multiply_registers`.
    """

    @instruction(*[INT64] * 15)
    def multiply(builder, register_state, row_registers, column_registers, *others):
        done = builder.append_basic_block("multiplied")
        switch = builder.switch(builder.add(builder.mul(row_registers, INT64(8)), column_registers), done)
        for rows, columns in SHAPES:
            case = builder.append_basic_block(f"registers_{rows}x{columns}")
            switch.add_case(INT64(8 * rows + columns), case)
            builder.position_at_end(case)
            name = f"registers_{rows}x{columns}x{vectors}"
            function, is_new = shared_function(builder.module, name, 1 + len(others))
            if is_new:
                body_builder = ir.IRBuilder(function.append_basic_block())
                instructions = TILE_INSTRUCTIONS[tiles](body_builder, function.args[0])
                _multiply_registers(instructions, rows, columns, vectors, function.args[1:])
                body_builder.ret_void()
            builder.call(function, [register_state, *others])
            builder.branch(done)
        builder.position_at_end(done)

    return multiply


def _multiply_registers(
    instructions: TileInstructions, rows: int, columns: int, vectors: int, args: Sequence[ir.Value]
) -> None:
    """Append the product for one shape. Registers 0 to 3 hold sums, 4 and 5 rows, 6 and 7 weights.

    Args:
        instructions: appends the instructions.
        rows, columns: the number of registers that the rows and the columns fill.
        vectors: the number of vectors of columns in a packed block.
        args: the addresses of the first 16 rows and of the other rows; the distances in bytes between rows, and between
            the blocks of 32 numbers that one iteration reads from a row; the number of iterations; the address of the
            rows' padded remainders, or 0; the addresses of the weights of four vectors of columns; the address of the
            sums, and the distance between rows of sums.
    """
    b, (upper, lower, pitch, step_bytes, steps, remainder, *weights, out, out_pitch) = instructions.builder, args
    sums = [(r, c, 2 * r + c) for c in range(columns) for r in range(rows)]

    def add_products(row_addresses: Sequence[ir.Value], pitch: ir.Value, k: ir.Value) -> None:
        for r in range(rows):
            instructions.load(4 + r, row_addresses[r], pitch)
        weights_offset = b.mul(k, INT64(vectors * REGISTER_BYTES))
        for r, c, register in sums:
            if r == 0:
                instructions.load(6 + c % 2, b.add(weights[c], weights_offset), INT64(vectors * 64))
            instructions.dot(register, 4 + r, 6 + c % 2)

    for _, _, register in sums:
        instructions.zero(register)
    before, loop, done = b.block, b.append_basic_block("loop"), b.append_basic_block("done")
    b.cbranch(b.icmp_signed(">", steps, INT64(0)), loop, done)
    b.position_at_end(loop)
    k = b.phi(INT64)
    row_offset = b.mul(k, step_bytes)
    add_products([b.add(upper, row_offset), b.add(lower, row_offset)], pitch, k)
    k.add_incoming(INT64(0), before)
    k_next = b.add(k, INT64(1))
    k.add_incoming(k_next, b.block)
    b.cbranch(b.icmp_signed("<", k_next, steps), loop, done)
    b.position_at_end(done)
    with b.if_then(b.icmp_signed("!=", remainder, INT64(0))):
        add_products([remainder, b.add(remainder, INT64(REGISTER_BYTES))], INT64(64), steps)
    for r, c, register in sums:
        out_offset = b.add(b.mul(out_pitch, INT64(SIDE * r)), INT64(64 * c))
        instructions.store(register, b.add(out, out_offset), out_pitch)


def padded_depth(depth):
    """Return the length of packed columns in bfloat16 numbers, padded to whole rows of registers."""
    return (depth + 31) // 32 * 32


def word_offset(first_unit, unit, capacity):
    """Return the offset in words of the first pair of a unit, which is in the block that begins with `first_unit`.

    A block has space for `capacity` pairs per unit. A row of a register has 16 pairs of one unit.
    """
    return first_unit * capacity + (unit - first_unit) * 16


def microkernel_rows(rows, max_rows):
    """Return the number of rows in the next call of the microkernel, if `rows` rows remain."""
    return min(rows, max_rows)


def pad_registers(packed, blocks, capacity, rows):
    """In each block, append pairs of zeros to the pairs of `rows` rows, up to the end of the last register."""
    for block in range(blocks):
        for pair in range((rows + 1) // 2, (rows + 31) // 32 * 16):
            copy_first(packed + (block * capacity + pair) * 64, packed, 0)


def transpose_registers(packed, blocks, capacity, rows):
    """In each block, pad the pairs of `rows` rows and transpose each register: a row then has 16 pairs of one unit."""
    pad_registers(packed, blocks, capacity, rows)
    for block in range(blocks):
        for pair in range(0, (rows + 1) // 2, 16):
            transpose_register(packed + (block * capacity + pair) * 64)
