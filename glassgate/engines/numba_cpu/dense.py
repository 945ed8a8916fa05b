"""Products of whole sequences around the loop, and the packing of their matrices, on the engine's own threads.

Each number of a result is summed by one thread in one order, so its bits do not depend on how many threads there are.
"""

from array import array
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.numba_cpu.buffers import Timetable
from glassgate.engines.numba_cpu.compile import Function, compiled
from glassgate.engines.numba_cpu.panels import MOST_PANELS, MOST_ROWS
from glassgate.engines.numba_cpu.processor import Processor, host
from glassgate.engines.numba_cpu.threads import Job

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

ROWS = '''
def rows(address):
    """The addresses of the rows of a buffer."""
    job = words(address)
    point(words(job[0]), job[3], job[4], job[1], job[2])
'''

BEFORE = '''
def before(address):
    """The addresses of the state before each row of all steps."""
    job = words(address)
    table, turn, sizes, starts, resets = job[0], job[1], words(job[2]), words(job[3]), job[4]
    state, pitch, initial, restart = job[5], job[6], job[7], job[8]
    for t in range(job[9], job[10]):
        here, there = words(table + starts[t] * 8), t + turn
        locate(here, 0, sizes[t], starts[t], resets, state, pitch, starts[there], sizes[there], initial, restart)
'''

ROWS_AT_ONCE = {"multiply": 48, "outer": 128}


def native(text: str, bits: int, sums: int = 1) -> Function:
    """The machine code of one of this file's texts."""
    return _native(text, bits, sums, host())


@cache
def _native(text: str, bits: int, sums: int, processor: Processor) -> Function:
    name = text.split("(")[0].removeprefix("\ndef ")
    rows, width = ROWS_AT_ONCE.get(name.split("_")[0], 0), processor.width
    values = {"SUMS": sums, "TILE": MOST_ROWS * MOST_PANELS * sums * width, "ROWS": rows}
    values |= {"POINTERS": 8 * rows, "PANELS": 4 * rows * width}
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", str(value))
    return compiled(text, name.replace("{SUMS}", str(sums)), bits, processor)


class Work(NamedTuple):
    """Something that threads can share, by its last two words: from which on, and up to which."""

    function: Function
    words: tuple[int, ...]
    size: int
    """How much there is to share."""
    alive: object = None

    def part(self, k: int, parts: int) -> Job:
        """One of `parts` about equal parts."""
        bounds = self.size * k // parts, self.size * (k + 1) // parts
        return Job(self.function, array("q", (*self.words, *bounds)), self.alive)


class Panels(NamedTuple):
    """A packed matrix."""

    memory: Tensor
    pitch: int
    """Numbers from one panel to the next."""
    work: list[Work]
    """What packs it."""


def panels(matrix: Tensor, gates: int, chosen: Sequence[int], heads: int, columns_too: bool) -> Panels:
    """Panels of a matrix whose rows are units, gate by gate; each head apart.

    Args:
        matrix: (gates * units, columns), contiguous.
        chosen: which gates, in which order.
        columns_too: panels of columns, for the transposed product.
    """
    bits = matrix.element_size() * 8
    lanes, (rows, columns) = host().lanes(bits), matrix.shape
    of_gate, units = rows // gates, rows // gates // heads
    width, depth, sums = (columns, len(chosen) * units, 1) if columns_too else (units, columns, len(chosen))
    blocks, pitch = -(-width // lanes), depth * sums * lanes + lanes
    memory, order = matrix.new_empty(heads * blocks * pitch), _order(tuple(chosen))
    text = LAY if columns_too else PACK
    row, start, size = columns * bits // 8, matrix.data_ptr(), bits // 8
    work = [
        Work(
            native(text, bits),
            (
                start + head * units * row,
                row,
                of_gate * row,
                len(chosen),
                order.data_ptr(),
                units,
                columns,
                memory.data_ptr() + head * blocks * pitch * size,
                pitch,
            ),
            blocks,
            (matrix, memory),
        )
        for head in range(heads)
    ]
    return Panels(memory, pitch, work)


@cache
def _order(chosen: tuple[int, ...]) -> Tensor:
    return torch.tensor(chosen)


def multiply(left: Tensor, by: Panels, sums: int, width: int, out: Tensor, added: bool = False) -> Work:
    """`left` (rows, depth) times a packed matrix, `sums` a unit of `width`: to `out` (rows, sums * width)."""
    size = left.element_size()
    words = (
        left.data_ptr(),
        left.stride(0) * size,
        left.shape[1],
        by.memory.data_ptr(),
        by.pitch,
        width,
        out.data_ptr(),
        out.stride(0) * size,
        int(added),
    )
    return Work(native(MULTIPLY, size * 8, sums), words, left.shape[0], (left, by, out))


def outer(
    d: Tensor, rights: Tensor | None, shift: int, out: Tensor | None, total: Tensor | None, added: bool = False
) -> Work:
    """The sum over rows of d (rows, units) times the rows at the addresses `rights`, from number `shift` on.

    Args:
        out: (units, width) that it is written to.
        total: (units,) for the sum of d alone.
    """
    size = d.element_size()
    words = (
        d.data_ptr(),
        d.stride(0) * size,
        d.shape[0],
        rights.data_ptr() if rights is not None else 0,
        shift * size,
        out.shape[1] if out is not None else 0,
        out.data_ptr() if out is not None else 0,
        out.stride(0) * size if out is not None else 0,
        total.data_ptr() if total is not None else 0,
        int(added),
    )
    return Work(native(OUTER, size * 8), words, d.shape[1], (d, rights, out, total))


def rows_of(buffer: Tensor) -> tuple[Tensor, Work]:
    """A table of the addresses of a buffer's rows, and what fills it."""
    table = torch.empty(len(buffer), dtype=torch.int64)
    words = (table.data_ptr(), buffer.data_ptr(), buffer.stride(0) * buffer.element_size())
    return table, Work(native(ROWS, 64), words, len(buffer), (table, buffer))


def rows_before(
    time: Timetable, reverse: bool, resets: Tensor | None, state: Tensor, initial: Tensor, restart: Tensor
) -> tuple[Tensor, Work]:
    """A table of where each row finds a state of the step before, and what fills it."""
    table = torch.empty(time.rows, dtype=torch.int64)
    words = (
        table.data_ptr(),
        1 if reverse else -1,
        time.sizes[1:].data_ptr(),
        time.starts[1:].data_ptr(),
        resets.data_ptr() if resets is not None else 0,
        state.data_ptr(),
        state.stride(0) * state.element_size(),
        initial.data_ptr(),
        restart.data_ptr(),
    )
    return table, Work(native(BEFORE, 64), words, time.steps, (table, time, resets, state, initial, restart))
