"""GEMMs over the rows of all steps, before and after the loop.

Threads divide the elements of a result. One thread sums all terms of an element in a fixed order, so the result does
not depend on the number of threads.
"""

from collections.abc import Sequence
from typing import NamedTuple

from glassgate.engines.llvm_cpu.amx import processor_for
from glassgate.engines.llvm_cpu.gemm.pack import MicrokernelMatrix
from glassgate.engines.llvm_cpu.native import compile_native
from glassgate.engines.llvm_cpu.simd.blocking import MAX_LONG_BLOCKS, blocking, rows_at_once, size_of_sums
from glassgate.engines.llvm_cpu.sizes import Arithmetic
from glassgate.engines.llvm_cpu.tasks import Operand, ParallelTask

MULTIPLY = '''
def multiply_{SUMS}(A, lda, K, B, block_pitch, layout, N, C, ldc, added, first, last):
    """C[row] = A[row] @ B, or with `added` C[row] += A[row] @ B, for the rows `first` to `last` - 1.

    B has N units of {SUMS} columns each. lda and ldc are in bytes, block_pitch is in words. `layout` is 0 if B is
    packed. Otherwise it is the argument `gates` or `row_pitch` of the microkernel.
    """
    sums, pointers = memory_{TILE}(), words(memory_{POINTERS}())
    blocks = (N + LANES - 1) // LANES
    for start in range(first, last, {ROWS}):
        count = min({ROWS}, last - start)
        write_row_addresses(pointers, 0, count, A + start * lda, lda)
        block = 0
        while block < blocks:
            wide, row = microkernel_blocks(blocks - block, MAX_ROWS_{SUMS}, MAX_AREA_{SUMS}), 0
            while row < count:
                rows = microkernel_rows(count - row, MAX_ROWS_{SUMS})
                at, live = B + block * block_pitch * BYTES, N - block * LANES
                long_microkernel_{SUMS}(pointers, row, 0, at, block_pitch, layout, live, K, sums, rows, wide)
                for near in range(rows):
                    C_row = C + (start + row + near) * ldc
                    for k in range(wide):
                        unit = (block + k) * LANES
                        live = N - unit
                        sums_at = sums + (near * wide + k) * {SUMS} * LANES * BYTES
                        for gate in range({SUMS}):
                            value = load(sums_at, gate * LANES, LANES)
                            if added:
                                value = value + load(C_row, gate * N + unit, live)
                            store(C_row, gate * N + unit, live, value)
                row += rows
            block += wide
'''

OUTER = '''
def outer(A, lda, K, B: words, shift, N, C, ldc, total_1, total_2, added, first, last):
    """C[unit] = sum over K rows of A[row, unit] * B[row], for the units `first` to `last` - 1.

    With `added`, the sum is added to C. B is a table of the addresses of rows of N numbers. Each row begins `shift`
    bytes after its address. lda and ldc are in bytes. If `total_1` or `total_2` is not 0, the sum of A over the rows is
    stored there or, with `added`, added there.
    """
    capacity = {ROWS} // PER_WORD * TERMS
    lefts, packed, sums, pointers = memory_{LEFTS}(), memory_{PACKED}(), memory_{TILE}(), words(memory_{POINTERS}())
    for start in range(0, K, {ROWS}):
        count, before = min({ROWS}, K - start), added or start > 0
        depth = (count + PER_WORD - 1) // PER_WORD * PER_WORD
        A_row = A + start * lda
        for near in range(first, last, {UNITS}):
            units = min({UNITS}, last - near)
            for unit in range(0, units, LANES):
                live, even, odd = units - unit, fill(0.0), fill(0.0)
                for row in range(0, count, PER_WORD):
                    last_row = min(row + PER_WORD, count) - 1
                    both = row + PER_WORD == last_row + 1
                    for term in range(TERMS):
                        word = left_word(A_row + row * lda, A_row + last_row * lda, near + unit, live, both, term)
                        store(lefts, unit * capacity + (row // PER_WORD * TERMS + term) * LANES, LANES, word)
                        even, odd = odd, add_word(even, word, term)
                for to in (total_1, total_2):
                    if to != 0:
                        value = even + odd
                        if before:
                            value = value + load(to, near + unit, live)
                        store(to, near + unit, live, value)
            transpose_registers(lefts, (units + LANES - 1) // LANES, capacity, depth * TERMS)
            column, fetched = 0, 0
            while column < N:
                wide = microkernel_blocks((N - column + LANES - 1) // LANES, MAX_ROWS_1, MAX_AREA_1)
                for row in range(0, count, PER_WORD):
                    last_row = min(row + PER_WORD, count) - 1
                    both = row + PER_WORD == last_row + 1
                    low, high = B[start + row] + shift, B[start + last_row] + shift
                    for k in range(wide):
                        at = column + k * LANES
                        for term in range(TERMS):
                            word = right_word(low, high, at, N - at, both, term)
                            store(packed, (k * capacity + row // PER_WORD * TERMS + term) * LANES, LANES, word)
                pad_registers(packed, wide, capacity, depth * TERMS)
                unit = 0
                while unit < units:
                    tall = microkernel_rows(units - unit, MAX_ROWS_1)
                    for k in range(tall):
                        first_unit = (unit + k) // LANES * LANES
                        pointers[k] = lefts + word_offset(first_unit, unit + k, capacity) * BYTES
                    C_row = C + (near + unit) * ldc
                    if before:
                        prefetch(C_row + column * BYTES, ldc, tall, 1, 0, wide * LANES * BYTES)
                    if fetched < count:
                        ahead = A_row + ({ROWS} + fetched) * lda + near * BYTES // PER_WORD * TERMS
                        prefetch(ahead, lda, tall, 1, 0, units * BYTES // PER_WORD * TERMS)
                        fetched += tall
                    strided_microkernel(pointers, 0, LANES, packed, capacity * LANES, depth, sums, tall, wide)
                    for row in range(tall):
                        for k in range(wide):
                            at = column + k * LANES
                            value = load(sums, (row * wide + k) * LANES, LANES)
                            if before:
                                value = value + load(C_row, at, N - at)
                            store(C_row, at, N - at, value)
                        C_row += ldc
                    unit += tall
                column += wide * LANES
'''

PACKED_ROWS, PACKED_UNITS = 256, 192
"""The numbers of rows and of units whose gradients `outer` packs at a time."""


class RowVectors(NamedTuple):
    """Row vectors in memory: the address of the first, the pitch in bytes, and the width in numbers."""

    start: Operand
    pitch: int
    width: int


def multiply(
    left: RowVectors,
    matrix: MicrokernelMatrix,
    sums: int,
    out: RowVectors,
    rows: Operand,
    bits: int,
    added: bool = False,
) -> ParallelTask:
    """Return the task that multiplies rows by a packed or unpacked matrix.

    Args:
        left: the rows. For a matrix in bfloat16 or in integers they must be rounded, see `round_rows`.
        matrix: the matrix.
        sums: the number of sums per unit: the number of gates, or 1 for a transposed matrix.
        out: the results for the first gate. Those for the other gates follow in the same rows.
        rows: the number of rows.
        bits: the size of a number.
        added: whether the results are added to the contents of `out`.
    """
    weights = matrix.start, matrix.pitch, matrix.gate_offsets or matrix.row_pitch, out.width
    operands = (left.start, left.pitch, left.width, *weights, out.start, out.pitch, int(added))
    processor = processor_for(matrix.arithmetic)
    row_count = rows_at_once(processor)
    values = {"SUMS": sums, "TILE": size_of_sums(sums, processor), "ROWS": row_count, "POINTERS": 8 * row_count}
    text = MULTIPLY.replace("long_microkernel", "long_transposed_microkernel") if matrix.row_pitch else MULTIPLY
    function = compile_native(text, bits, matrix.arithmetic, **values)
    return ParallelTask(function, operands, rows)


def outer(
    d: RowVectors,
    rows: Operand,
    right: tuple[Operand, int],
    out: RowVectors,
    totals: Sequence[Operand],
    bits: int,
    added: bool = False,
    arithmetic: Arithmetic = Arithmetic.FULL,
) -> ParallelTask:
    """Return the task of a weight gradient GEMM: the sum over rows of the outer products of two row vectors.

    Args:
        d: the left vectors, which are gradients. Each of their numbers belongs to a row of `out`.
        rows: the number of rows.
        right: the table of the addresses of the right vectors, and an offset in bytes that is added to the addresses.
        out: the result. Its width is 0 if it is not needed.
        totals: at most two addresses. The sum of `d` over the rows is stored at each or, with `added`, added there.
        bits: the size of a number.
        added: whether the result is added to the contents of `out`.
        arithmetic: the arithmetic. For products in bfloat16, `d` must be rounded.
    """
    total_1, total_2 = (*totals, 0, 0)[:2]
    operands = (d.start, d.pitch, rows, *right, out.width, out.start, out.pitch, total_1, total_2, int(added))
    processor = processor_for(arithmetic)
    column_size = PACKED_ROWS * (2 * arithmetic.terms or bits // 8)
    values = {
        "ROWS": PACKED_ROWS,
        "UNITS": PACKED_UNITS,
        "LEFTS": column_size * PACKED_UNITS,
        "PACKED": column_size * MAX_LONG_BLOCKS * processor.lanes(bits),
        "TILE": size_of_sums(1, processor),
        "POINTERS": 8 * blocking(1, processor).max_rows,
    }
    return ParallelTask(compile_native(OUTER, bits, arithmetic, **values), operands, d.width)


ROUND_ROWS = '''
def round_all_rows(A, lda, K, out, out_pitch, first, last):
    """Round rows of K numbers for products. Each rounded row is padded to whole vectors."""
    for row in range(first, last):
        round_row(A + row * lda, K, out + row * out_pitch)
'''


def round_rows(
    rows: RowVectors, out: Operand, count: Operand, arithmetic: Arithmetic
) -> tuple[ParallelTask, RowVectors]:
    """Return the task that rounds rows for products with an arithmetic, and the rounded rows.

    Args:
        rows: the rows.
        out: the address of the rounded rows.
        count: the number of rows.
        arithmetic: the arithmetic of the products, with rounded operands.
    """
    pitch = processor_for(arithmetic).rounded_pitch(rows.width)
    task = ParallelTask(
        compile_native(ROUND_ROWS, 32, arithmetic), (rows.start, rows.pitch, rows.width, out, pitch), count
    )
    return task, RowVectors(out, pitch, rows.width)
