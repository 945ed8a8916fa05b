"""The matrix product of rows with transposed, unpacked weights. The result has one sum for each column of the weights.

Packing a matrix takes longer than reading it a few times. The rows of the weights are read in order. Neighbouring
columns are neighbours in memory, so each lane of a vector of weights contributes to its own sum.
"""

from typing import Any

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import INT64, Instruction, instruction, pointer_at, splat
from glassgate.engines.llvm_cpu.simd.microkernel import shared_function
from glassgate.engines.llvm_cpu.simd.vector import Vector, VectorType, load_first


def microkernel(packed_microkernel: Any, bits: int, lanes: int, rounds_operands: bool) -> Any:
    """Return the function that multiplies by packed or unpacked transposed weights.

    The results for packed and unpacked weights are equal bit for bit, because sums have the same order of terms.

    Args:
        packed_microkernel: the microkernel for packed weights, see `MultiplicationMethod.microkernel`; not strided.
        bits, lanes: the type of vectors.
        rounds_operands: see `Processor.rounds_operands`. If true, the weights are always packed.

    Returns:
        microkernel(left, first_row, first, weights, pitch, row_pitch, units, depth, out, rows, blocks). If `row_pitch`
        is 0, it calls `packed_microkernel`. Otherwise `row_pitch` is the distance between rows of the weights in bytes.
        `units` is the number of columns from the address `weights` to the last column.
    """

    def packed(left, first_row, first, weights, pitch, row_pitch, units, depth, out, rows, blocks):
        packed_microkernel(left, first_row, first, weights, pitch, depth, out, rows, blocks)

    if rounds_operands:
        return packed
    number_bytes, vector_bytes = bits // 8, lanes * bits // 8
    V = VectorType(bits, lanes)
    columns_8, columns_4, columns_2, columns_1 = (_columns(V, blocks) for blocks in (8, 4, 2, 1))
    columns_last = _columns(V, 1, is_whole=False)

    def packed_or_unpacked(left, first_row, first, weights, pitch, row_pitch, units, depth, out, rows, blocks):
        if row_pitch == 0:
            packed_microkernel(left, first_row, first, weights, pitch, depth, out, rows, blocks)
            return
        whole_blocks = min(blocks, units // lanes)
        for row in range(rows):
            numbers, block = left[first_row + row] + first * number_bytes, 0
            while block < blocks:
                at, sums = weights + block * vector_bytes, out + (row * blocks + block) * vector_bytes
                if whole_blocks - block >= 8:
                    columns_8(numbers, at, row_pitch, 8 * lanes, depth, sums)
                    block += 8
                elif whole_blocks - block >= 4:
                    columns_4(numbers, at, row_pitch, 4 * lanes, depth, sums)
                    block += 4
                elif whole_blocks - block >= 2:
                    columns_2(numbers, at, row_pitch, 2 * lanes, depth, sums)
                    block += 2
                elif whole_blocks - block == 1:
                    columns_1(numbers, at, row_pitch, lanes, depth, sums)
                    block += 1
                else:
                    columns_last(numbers, at, row_pitch, units - block * lanes, depth, sums)
                    block += 1

    return packed_or_unpacked


def _columns(V: VectorType, blocks: int, is_whole: bool = True) -> Instruction:
    """Return the instruction that multiplies one row by the columns of a fixed number of blocks, each one vector wide.

    columns(numbers, matrix, pitch, live, depth, out) writes to out[column] the sum over k < depth of
    numbers[k] * matrix[k][column]. The pitch is in bytes. If not `is_whole`, only the first `live` columns are read.
    """

    @instruction(*[INT64] * 6)
    def columns(builder, *operands):
        name = f"columns_{blocks if is_whole else 'last'}_{V}"
        function, is_new = shared_function(builder.module, name, 6)
        if is_new:
            _add_columns(function, V, blocks, is_whole)
        builder.call(function, operands)

    return columns


def _add_columns(function: ir.Function, V: VectorType, blocks: int, is_whole: bool) -> None:
    """Add the code of `_columns` to its LLVM function."""
    numbers, matrix, pitch, live, depth, out = function.args
    entry, loop, done = (function.append_basic_block(n) for n in ("entry", "k", "done"))
    offsets = [INT64(block * V.lanes * V.number_size) for block in range(blocks)]
    ir.IRBuilder(entry).branch(loop)

    b = ir.IRBuilder(loop)
    k, sums = b.phi(INT64), [b.phi(V.llvm) for _ in offsets]
    number = Vector(b, splat(b, b.load(b.gep(pointer_at(b, numbers, V.element), [k])), V.lanes))
    row = b.add(matrix, b.mul(k, pitch))
    next_sums = []
    for offset, total in zip(offsets, sums, strict=True):
        pointer = pointer_at(b, b.add(row, offset), V.llvm)
        weights = b.load(pointer, align=V.number_size) if is_whole else load_first(b, pointer, V.number_size, live)
        next_sums.append(number.fma(Vector(b, weights), Vector(b, total)).value)
    k_next = b.add(k, INT64(1))
    b.cbranch(b.icmp_signed("<", k_next, depth), loop, done)
    for phi, first, following in zip((k, *sums), (INT64(0), *[V.zero] * blocks), (k_next, *next_sums), strict=True):
        phi.add_incoming(first, entry)
        phi.add_incoming(following, loop)

    b.position_at_end(done)
    for offset, total in zip(offsets, next_sums, strict=True):
        b.store(total, pointer_at(b, b.add(out, offset), V.llvm)).align = V.number_size
    b.ret_void()
