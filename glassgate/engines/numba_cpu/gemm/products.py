"""Products of whole sequences around the loop, shared out among threads.

Each number of a result is summed by one thread in one order, so its bits do not depend on how many threads there are.
"""

from typing import NamedTuple

from glassgate.engines.numba_cpu.amx import multiplier
from glassgate.engines.numba_cpu.gemm.pack import Packed
from glassgate.engines.numba_cpu.native import native
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.simd.blocking import blocking, rows_at_once, size_of_sums
from glassgate.engines.numba_cpu.tasks import Operand, ParallelTask

MULTIPLY = '''
def multiply_{SUMS}(address):
    """out[row] = left[row] @ matrix for some rows, {SUMS} sums a unit; or added to what is there."""
    job = words(address)
    left, left_pitch, depth = job[0], job[1], job[2]
    weights, pitch, width = job[3], job[4], job[5]
    out, out_pitch, added = job[6], job[7], job[8]
    first, last = job[9], job[10]
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
                long_microkernel_{SUMS}(pointers, rank, 0, at, pitch, depth, sums, rows, wide)
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
    """out[unit] = sum over rows of d[row, unit] * right[row] for some units; in `total` the sum of d alone."""
    job = words(address)
    d, d_pitch, rows = job[0], job[1], job[2]
    rights, shift, width = words(job[3]), job[4], job[5]
    out, out_pitch, total, added = job[6], job[7], job[8], job[9]
    first, last = job[10], job[11]
    packed, sums, pointers = memory_{PACKED}(), memory_{TILE}(), words(memory_64())
    for start in range(0, rows, {ROWS}):
        count = min({ROWS}, rows - start)
        d_at = d + start * d_pitch
        if total != 0:
            for unit in range(first, last, LANES):
                live = last - unit
                value = fill(0.0)
                for row in range(count):
                    value = value + load(d_at + row * d_pitch, unit, live)
                if added or start > 0:
                    value = value + load(total, unit, live)
                store(total, unit, live, value)
        column = 0
        while column < width:
            wide = blocks_of_tile((width - column + LANES - 1) // LANES, MOST_ROWS_1, ROOM_1)
            for row in range(count):
                right = rights[start + row] + shift
                for k in range(wide):
                    at = column + k * LANES
                    store(packed, (k * {ROWS} + row) * LANES, LANES, load(right, at, width - at))
            unit = first
            while unit < last:
                high = rows_of_tile(last - unit, MOST_ROWS_1)
                point(pointers, 0, high, d_at + unit * BYTES, BYTES)
                strided_microkernel(pointers, 0, d_pitch // BYTES, packed, {ROWS} * LANES, count, sums, high, wide)
                for near in range(high):
                    out_at = out + (unit + near) * out_pitch
                    for k in range(wide):
                        at = column + k * LANES
                        value = load(sums, (near * wide + k) * LANES, LANES)
                        if added or start > 0:
                            value = value + load(out_at, at, width - at)
                        store(out_at, at, width - at, value)
                unit += high
            column += wide * LANES
'''

OUTER_OF_PAIRS = '''
def outer_of_pairs(address):
    """As `outer`, with the numbers of two rows rounded to one word; those of d are so already."""
    job = words(address)
    d, d_pitch, rows = job[0], job[1], job[2]
    rights, shift, width = words(job[3]), job[4], job[5]
    out, out_pitch, total, added = job[6], job[7], job[8], job[9]
    first, last = job[10], job[11]
    packed, lefts, sums, pointers = memory_{PACKED}(), memory_{LEFTS}(), memory_{TILE}(), words(memory_{POINTERS}())
    for start in range(0, rows, {ROWS}):
        count = min({ROWS}, rows - start)
        d_at = d + start * d_pitch
        if total != 0:
            for unit in range(first, last, LANES):
                live = last - unit
                value = fill(0.0)
                for row in range(count):
                    value = value + load_rounded(d_at + row * d_pitch, unit, live)
                if added or start > 0:
                    value = value + load(total, unit, live)
                store(total, unit, live, value)
        if width > 0:
            for near in range(first, last, {UNITS}):
                units = min({UNITS}, last - near)
                for row in range(0, count, 2):
                    both = row + 1 < count
                    for unit in range(0, units, LANES):
                        live = units - unit
                        low, high = d_at + row * d_pitch, d_at + (row + both) * d_pitch
                        halves = pair_rounded(low, high, near + unit, live, live * both)
                        store(lefts, (unit * {ROWS} + row * LANES) // 2, LANES, halves)
                turn_registers(lefts, (units + LANES - 1) // LANES, {ROWS} // 2, count)
                column = 0
                while column < width:
                    wide = blocks_of_tile((width - column + LANES - 1) // LANES, MOST_ROWS_1, ROOM_1)
                    for row in range(0, count, 2):
                        both = row + 1 < count
                        right, then = rights[start + row] + shift, rights[start + row + both] + shift
                        for k in range(wide):
                            at = column + k * LANES
                            low, high = load(right, at, width - at), load(then, at, (width - at) * both)
                            store(packed, (k * {ROWS} + row) // 2 * LANES, LANES, pair(low, high))
                    fill_registers(packed, wide, {ROWS} // 2, count)
                    unit = 0
                    while unit < units:
                        tall = rows_of_tile(units - unit, MOST_ROWS_1)
                        for k in range(tall):
                            block = (unit + k) // LANES * LANES
                            pointers[k] = lefts + place_of_pair(block, unit + k, {ROWS} // 2) * BYTES
                        if added or start > 0:
                            ahead = out + (near + unit) * out_pitch + column * BYTES
                            fetch(ahead, out_pitch, tall, 1, 0, wide * LANES * BYTES)
                        strided_microkernel(pointers, 0, LANES, packed, {ROWS} // 2 * LANES, count, sums, tall, wide)
                        for beside in range(tall):
                            out_at = out + (near + unit + beside) * out_pitch
                            for k in range(wide):
                                at = column + k * LANES
                                value = load(sums, (beside * wide + k) * LANES, LANES)
                                if added or start > 0:
                                    value = value + load(out_at, at, width - at)
                                store(out_at, at, width - at, value)
                        unit += tall
                    column += wide * LANES
'''

SUMMED_AT_ONCE = 128
"""Rows of a sum over rows."""
PAIRS_AT_ONCE, UNITS_AT_ONCE = 256, 192
"""Rows of a sum over pairs of rows, and units for which they are rounded."""


class RowVectors(NamedTuple):
    """Row vectors in memory: where they begin, how many bytes apart, and how many numbers of each count."""

    start: Operand
    pitch: int
    width: int


def multiply(
    left: RowVectors, by: Packed, sums: int, out: RowVectors, rows: Operand, bits: int, added: bool = False
) -> ParallelTask:
    """Rows times a packed matrix, `sums` a unit: to `out`, as wide as its units, or added to what is there.

    Rows for a matrix of bfloat16 are of that too: see `rounded`.
    """
    operands = (left.start, left.pitch, left.width, by.start, by.pitch, out.width, out.start, out.pitch, int(added))
    processor = multiplier(by.bfloat16)
    at_once = rows_at_once(processor)
    values = {"SUMS": sums, "TILE": size_of_sums(sums, processor), "ROWS": at_once, "POINTERS": 8 * at_once}
    function = native(MULTIPLY, bits, by.bfloat16, **values)
    return ParallelTask(function, operands, rows)


def outer(
    d: RowVectors,
    rows: Operand,
    rights: tuple[Operand, int],
    out: RowVectors,
    total: Operand,
    bits: int,
    added: bool = False,
    bfloat16: bool = False,
) -> ParallelTask:
    """The sum over rows of d times other rows.

    Args:
        d: one row vector of gradients each, its numbers the rows of `out`.
        rows: how many.
        rights: the table of the others' addresses, and where each of them begins, in bytes.
        out: what it is written to; of width 0 where it is not wanted.
        total: where the sum of d alone goes, or 0.
        added: to what is there.
        bfloat16: whether those of d are of that, and the others rounded to it.
    """
    operands = (d.start, d.pitch, rows, *rights, out.width, out.start, out.pitch, total, int(added))
    processor = multiplier(bfloat16)
    width, tile = processor.width, size_of_sums(1, processor)
    if bfloat16:
        packed, lefts = 4 * PAIRS_AT_ONCE // 2 * width, PAIRS_AT_ONCE // 2 * UNITS_AT_ONCE * 4
        values = {"ROWS": PAIRS_AT_ONCE, "UNITS": UNITS_AT_ONCE, "PACKED": packed, "LEFTS": lefts}
        values["POINTERS"] = 8 * max(8, blocking(1, processor).most_rows)
        function = native(OUTER_OF_PAIRS, bits, True, TILE=tile, **values)
    else:
        function = native(OUTER, bits, TILE=tile, ROWS=SUMMED_AT_ONCE, PACKED=4 * SUMMED_AT_ONCE * width)
    return ParallelTask(function, operands, d.width)


ROUND = '''
def rounded(address):
    """Rows of numbers rounded to bfloat16, each to whole vectors, zero from its end on."""
    job = words(address)
    source, pitch, width, out, out_pitch = job[0], job[1], job[2], job[3], job[4]
    for row in range(job[5], job[6]):
        round_row(source + row * pitch, width, out + row * out_pitch)
'''


def rounded(rows: RowVectors, to: Operand, count: Operand) -> tuple[ParallelTask, RowVectors]:
    """What rounds rows to bfloat16, and where they then are."""
    pitch = host().rounded_pitch(rows.width)
    task = ParallelTask(native(ROUND, 32, True), (rows.start, rows.pitch, rows.width, to, pitch), count)
    return task, RowVectors(to, pitch, rows.width)
