"""Products of whole sequences around the loop, and the packing of their matrices, shared out among threads.

Each number of a result is summed by one thread in one order, so its bits do not depend on how many threads there are.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.numba_cpu.native import native
from glassgate.engines.numba_cpu.panels import MOST_PANELS, MOST_ROWS
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.work import Word, Work

MULTIPLY = '''
def multiply_{SUMS}(address):
    """out[row] = left[row] @ matrix for some rows, {SUMS} sums a unit; or added to what is there."""
    job = words(address)
    left, left_pitch, depth = job[0], job[1], job[2]
    weights, panel, width = job[3], job[4], job[5]
    out, out_pitch, added = job[6], job[7], job[8]
    first, last = job[9], job[10]
    sums, pointers = memory_{TILE}(), words(memory_{POINTERS}())
    blocks = (width + LANES - 1) // LANES
    for start in range(first, last, {ROWS}):
        count = min({ROWS}, last - start)
        point(pointers, 0, count, left + start * left_pitch, left_pitch)
        block = 0
        while block < blocks:
            wide, rank = panels_of_tile(blocks - block, MOST_ROWS_{SUMS}, ROOM_{SUMS}), 0
            while rank < count:
                rows = rows_of_tile(count - rank, MOST_ROWS_{SUMS})
                long_tile_{SUMS}(pointers, rank, 0, weights + block * panel * BYTES, panel, depth, sums, rows, wide)
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
    panels, sums, pointers = memory_{PANELS}(), memory_{TILE}(), words(memory_64())
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
            wide = panels_of_tile((width - column + LANES - 1) // LANES, MOST_ROWS_1, ROOM_1)
            for row in range(count):
                right = rights[start + row] + shift
                for k in range(wide):
                    at = column + k * LANES
                    store(panels, (k * {ROWS} + row) * LANES, LANES, load(right, at, width - at))
            unit = first
            while unit < last:
                high = rows_of_tile(last - unit, MOST_ROWS_1)
                point(pointers, 0, high, d_at + unit * BYTES, BYTES)
                strided_tile(pointers, 0, d_pitch // BYTES, panels, {ROWS} * LANES, count, sums, high, wide)
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

PACK = '''
def pack(address):
    """A matrix with one row a unit, some gates of it, as panels of units: (panel, column, gate, lane)."""
    job = words(address)
    matrix, pitch, gate_pitch, gates, order = job[0], job[1], job[2], job[3], words(job[4])
    units, columns, packed, panel = job[5], job[6], job[7], job[8]
    first, last = job[9], job[10]
    for block in range(first, last):
        for gate in range(gates):
            rows = matrix + order[gate] * gate_pitch + block * LANES * pitch
            out = packed + (block * panel + gate * LANES) * BYTES
            for k in range(0, columns, LANES):
                at = out + k * gates * LANES * BYTES
                transpose(rows + k * BYTES, pitch, units - block * LANES, columns - k, at, gates * LANES * BYTES)
'''

LAY = '''
def lay(address):
    """A matrix with one row a unit, some gates of it, as panels of columns: (panel, gate and unit, lane)."""
    job = words(address)
    matrix, pitch, gate_pitch, gates, order = job[0], job[1], job[2], job[3], words(job[4])
    units, columns, packed, panel = job[5], job[6], job[7], job[8]
    first, last = job[9], job[10]
    for block in range(first, last):
        at = block * LANES
        for gate in range(gates):
            out = packed + (block * panel + gate * units * LANES) * BYTES
            for unit in range(units):
                row = matrix + order[gate] * gate_pitch + unit * pitch
                store(out, unit * LANES, LANES, load(row, at, columns - at))
'''

ROWS_AT_ONCE, SUMMED_AT_ONCE = 48, 128
"""Rows of a product, and of a sum over rows."""
FEW_NUMBERS = 2**16
"""To pack fewer than these is no work for two threads."""


class Panels(NamedTuple):
    """A packed matrix: the name of its memory, the bytes there, from one panel to the next, and what packs it."""

    name: str
    size: int
    pitch: int
    work: list[Work]


class Matrix(NamedTuple):
    """One whose rows are units, gate by gate, without gaps."""

    name: str
    gates: int
    rows: int
    columns: int
    bits: int


def panels(name: str, matrix: Matrix, chosen: Sequence[int], heads: int, columns_too: bool) -> Panels:
    """Panels of a matrix, each head apart.

    Args:
        name: of the memory that they are packed into.
        matrix: what is packed.
        chosen: which gates, in which order.
        heads: how many.
        columns_too: panels of columns, for the transposed product.
    """
    lanes, size, columns = host().lanes(matrix.bits), matrix.bits // 8, matrix.columns
    of_gate, units = matrix.rows // matrix.gates, matrix.rows // matrix.gates // heads
    width, depth, sums = (columns, len(chosen) * units, 1) if columns_too else (units, columns, len(chosen))
    blocks, pitch = -(-width // lanes), depth * sums * lanes + lanes
    text, row, order = LAY if columns_too else PACK, columns * size, _order(tuple(chosen)).data_ptr()
    work = [
        Work(
            native(text, matrix.bits),
            (
                (matrix.name, head * units * row),
                row,
                of_gate * row,
                len(chosen),
                order,
                units,
                columns,
                (name, head * blocks * pitch * size),
                pitch,
            ),
            blocks,
            light=len(chosen) * units * columns < FEW_NUMBERS,
        )
        for head in range(heads)
    ]
    return Panels(name, heads * blocks * pitch * size, pitch, work)


@cache
def _order(chosen: tuple[int, ...]) -> Tensor:
    return torch.tensor(chosen)


class Rows(NamedTuple):
    """Row vectors in memory: where they begin, how many bytes apart, and how many numbers of each count."""

    start: Word
    pitch: int
    width: int


def multiply(left: Rows, by: Panels, sums: int, out: Rows, rows: Word, bits: int, added: bool = False) -> Work:
    """Rows times a packed matrix, `sums` a unit: to `out`, as wide as its units, or added to what is there."""
    words = (left.start, left.pitch, left.width, by.name, by.pitch, out.width, out.start, out.pitch, int(added))
    pointers, tile = 8 * ROWS_AT_ONCE, MOST_ROWS * MOST_PANELS * sums * host().width
    function = native(MULTIPLY, bits, SUMS=sums, TILE=tile, ROWS=ROWS_AT_ONCE, POINTERS=pointers)
    return Work(function, words, rows)


def outer(
    d: Rows,
    rows: Word,
    rights: tuple[Word, int],
    out: Rows,
    total: Word,
    bits: int,
    added: bool = False,
) -> Work:
    """The sum over rows of d times other rows.

    Args:
        d: one row vector of gradients each, its numbers the rows of `out`.
        rows: how many.
        rights: the table of the others' addresses, and where each of them begins, in bytes.
        out: what it is written to; of width 0 where it is not wanted.
        total: where the sum of d alone goes, or 0.
        added: to what is there.
    """
    words = (d.start, d.pitch, rows, *rights, out.width, out.start, out.pitch, total, int(added))
    width, tile = host().width, MOST_ROWS * MOST_PANELS * host().width
    function = native(OUTER, bits, TILE=tile, ROWS=SUMMED_AT_ONCE, PANELS=4 * SUMMED_AT_ONCE * width)
    return Work(function, words, d.width)
