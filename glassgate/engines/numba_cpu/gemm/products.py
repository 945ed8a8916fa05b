"""Matrix products of whole sequences before and after the loop, divided among threads.

One thread sums each number of a result in a fixed order, so the bits do not depend on the number of threads.
"""

from collections.abc import Sequence
from typing import NamedTuple

from glassgate.engines.numba_cpu.amx import multiplier
from glassgate.engines.numba_cpu.gemm.pack import Packed
from glassgate.engines.numba_cpu.native import native
from glassgate.engines.numba_cpu.simd.blocking import LONG_BLOCKS, blocking, rows_at_once, size_of_sums
from glassgate.engines.numba_cpu.tasks import Operand, ParallelTask

MULTIPLY = '''
def multiply_{SUMS}(address):
    """out[row] = left[row] @ matrix for some rows, {SUMS} sums a unit; or added to what is there."""
    job = words(address)
    left, left_pitch, depth = job[0], job[1], job[2]
    weights, pitch, gates, width = job[3], job[4], job[5], job[6]
    out, out_pitch, added = job[7], job[8], job[9]
    first, last = job[10], job[11]
    sums, pointers = memory_{TILE}(), words(memory_{POINTERS}())
    blocks = (width + LANES - 1) // LANES
    for start in range(first, last, {ROWS}):
        count = min({ROWS}, last - start)
        point(pointers, 0, count, left + start * left_pitch, left_pitch)
        block = 0
        while block < blocks:
            wide, rank = blocks_of_tile(blocks - block, MOST_ROWS_{SUMS}, ROOM_{SUMS}), 0
            while rank < count:
                rows = rows_of_tile(count - rank, MOST_ROWS_{SUMS})
                at = weights + block * pitch * BYTES
                long_microkernel_{SUMS}(pointers, rank, 0, at, pitch, gates, depth, sums, rows, wide)
                for near in range(rows):
                    out_at = out + (start + rank + near) * out_pitch
                    for k in range(wide):
                        unit = (block + k) * LANES
                        live = width - unit
                        sums_at = sums + (near * wide + k) * {SUMS} * LANES * BYTES
                        for gate in range({SUMS}):
                            value = load(sums_at, gate * LANES, LANES)
                            if added:
                                value = value + load(out_at, gate * width + unit, live)
                            store(out_at, gate * width + unit, live, value)
                rank += rows
            block += wide
'''

OUTER = '''
def outer(address):
    """out[unit] = sum over rows of d[row, unit] * right[row] for some units; in each total the sum of d alone."""
    job = words(address)
    d, d_pitch, rows = job[0], job[1], job[2]
    rights, shift, width = words(job[3]), job[4], job[5]
    out, out_pitch, total, also, added = job[6], job[7], job[8], job[9], job[10]
    first, last, most = job[11], job[12], {ROWS} // PER_WORD * TERMS
    lefts, packed, sums, pointers = memory_{LEFTS}(), memory_{PACKED}(), memory_{TILE}(), words(memory_{POINTERS}())
    for start in range(0, rows, {ROWS}):
        count, before = min({ROWS}, rows - start), added or start > 0
        depth = (count + PER_WORD - 1) // PER_WORD * PER_WORD
        d_at = d + start * d_pitch
        for near in range(first, last, {UNITS}):
            units = min({UNITS}, last - near)
            for unit in range(0, units, LANES):
                live, even, odd = units - unit, fill(0.0), fill(0.0)
                for row in range(0, count, PER_WORD):
                    then = min(row + PER_WORD, count) - 1
                    both = row + PER_WORD == then + 1
                    for term in range(TERMS):
                        word = left_word(d_at + row * d_pitch, d_at + then * d_pitch, near + unit, live, both, term)
                        store(lefts, unit * most + (row // PER_WORD * TERMS + term) * LANES, LANES, word)
                        even, odd = odd, add_word(even, word, term)
                for to in (total, also):
                    if to != 0:
                        value = even + odd
                        if before:
                            value = value + load(to, near + unit, live)
                        store(to, near + unit, live, value)
            turn_registers(lefts, (units + LANES - 1) // LANES, most, depth * TERMS)
            column, fetched = 0, 0
            while column < width:
                wide = blocks_of_tile((width - column + LANES - 1) // LANES, MOST_ROWS_1, ROOM_1)
                for row in range(0, count, PER_WORD):
                    then = min(row + PER_WORD, count) - 1
                    both = row + PER_WORD == then + 1
                    low, high = rights[start + row] + shift, rights[start + then] + shift
                    for k in range(wide):
                        at = column + k * LANES
                        for term in range(TERMS):
                            word = right_word(low, high, at, width - at, both, term)
                            store(packed, (k * most + row // PER_WORD * TERMS + term) * LANES, LANES, word)
                fill_registers(packed, wide, most, depth * TERMS)
                unit = 0
                while unit < units:
                    tall = rows_of_tile(units - unit, MOST_ROWS_1)
                    for k in range(tall):
                        block = (unit + k) // LANES * LANES
                        pointers[k] = lefts + place_of_word(block, unit + k, most) * BYTES
                    out_at = out + (near + unit) * out_pitch
                    if before:
                        fetch(out_at + column * BYTES, out_pitch, tall, 1, 0, wide * LANES * BYTES)
                    if fetched < count:
                        ahead = d_at + ({ROWS} + fetched) * d_pitch + near * BYTES // PER_WORD * TERMS
                        fetch(ahead, d_pitch, tall, 1, 0, units * BYTES // PER_WORD * TERMS)
                        fetched += tall
                    strided_microkernel(pointers, 0, LANES, packed, most * LANES, depth, sums, tall, wide)
                    for beside in range(tall):
                        for k in range(wide):
                            at = column + k * LANES
                            value = load(sums, (beside * wide + k) * LANES, LANES)
                            if before:
                                value = value + load(out_at, at, width - at)
                            store(out_at, at, width - at, value)
                        out_at += out_pitch
                    unit += tall
                column += wide * LANES
'''

SUMMED_AT_ONCE, UNITS_AT_ONCE = 256, 192
"""Rows of a sum over rows, and units whose gradients are laid out for it."""


class RowVectors(NamedTuple):
    """Row vectors in memory: their address, their distance in bytes, and the width of each in numbers."""

    start: Operand
    pitch: int
    width: int


def multiply(
    left: RowVectors, by: Packed, sums: int, out: RowVectors, rows: Operand, bits: int, added: bool = False
) -> ParallelTask:
    """Rows times a packed matrix, with `sums` per unit. The result is stored to `out`, or added to it.

    Rows for a matrix of bfloat16 are in bfloat16, too: see `rounded`.
    """
    weights = by.start, by.pitch, by.gates, out.width
    operands = (left.start, left.pitch, left.width, *weights, out.start, out.pitch, int(added))
    processor = multiplier(by.terms)
    at_once = rows_at_once(processor)
    values = {"SUMS": sums, "TILE": size_of_sums(sums, processor), "ROWS": at_once, "POINTERS": 8 * at_once}
    function = native(MULTIPLY, bits, by.terms, **values)
    return ParallelTask(function, operands, rows)


def outer(
    d: RowVectors,
    rows: Operand,
    rights: tuple[Operand, int],
    out: RowVectors,
    totals: Sequence[Operand],
    bits: int,
    added: bool = False,
    terms: int = 0,
) -> ParallelTask:
    """The sum over rows of d times other rows.

    Args:
        d: one row vector of gradients per row; its numbers are the rows of `out`.
        rows: the number of rows.
        rights: the table of the addresses of the other rows, and their offset in bytes.
        out: the result; its width is 0 if it is not needed.
        totals: the addresses of the sum of d, at most two.
        added: whether the result is added to `out`.
        terms: see `Sizes.terms`; for products in bfloat16, d is already rounded.
    """
    total, also = (*totals, 0, 0)[:2]
    operands = (d.start, d.pitch, rows, *rights, out.width, out.start, out.pitch, total, also, int(added))
    processor = multiplier(terms)
    row = SUMMED_AT_ONCE * (2 * terms or bits // 8)
    values = {
        "ROWS": SUMMED_AT_ONCE,
        "UNITS": UNITS_AT_ONCE,
        "LEFTS": row * UNITS_AT_ONCE,
        "PACKED": row * LONG_BLOCKS * processor.lanes(bits),
        "TILE": size_of_sums(1, processor),
        "POINTERS": 8 * blocking(1, processor).most_rows,
    }
    return ParallelTask(native(OUTER, bits, terms, **values), operands, d.width)


ROUND = '''
def rounded(address):
    """Rows of numbers rounded to bfloat16, each to whole vectors, zero from its end on."""
    job = words(address)
    source, pitch, width, out, out_pitch = job[0], job[1], job[2], job[3], job[4]
    for row in range(job[5], job[6]):
        round_row(source + row * pitch, width, out + row * out_pitch)
'''


def rounded(rows: RowVectors, to: Operand, count: Operand, terms: int) -> tuple[ParallelTask, RowVectors]:
    """The tasks that round rows to bfloat16, and the table of the rounded rows; terms: see `Sizes.terms`."""
    pitch = multiplier(terms).rounded_pitch(rows.width)
    task = ParallelTask(native(ROUND, 32, terms), (rows.start, rows.pitch, rows.width, to, pitch), count)
    return task, RowVectors(to, pitch, rows.width)
