"""Functions that printed kernels call, other than mathematics: addresses of rows, shapes of tiles, prefetching."""

from typing import Any

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.addresses import flags, words
from glassgate.engines.llvm_cpu.simd.instructions import INT8, INT32, INT64, at, call, instruction


def shape_of_tiles(rows, most_rows, room):
    """The number of rows of a tile, so that all tiles are about equal, and the number of blocks of a tile."""
    high = max(1, rows)
    if rows > most_rows:
        tiles = (rows + most_rows - 1) // most_rows
        high = (rows + tiles - 1) // tiles
    wide = 8
    while wide > 1 and high * wide > room:
        wide //= 2
    return high, wide


def rows_of_tile(rows, most_rows):
    """The number of rows of the next tile, for products of many rows."""
    return most_rows if rows >= most_rows else min(rows, 2)


def blocks_of_tile(blocks, most_rows, room):
    """The number of blocks of a tile, for products of many rows."""
    wide = 4
    while wide > 1 and (most_rows * wide > room or wide > blocks):
        wide //= 2
    return wide


def point(pointers, first, last, base, pitch):
    """Write the addresses of the rows `first` to `last`, which are `pitch` bytes apart."""
    for rank in range(first, last):
        pointers[rank] = base + rank * pitch


def is_reset(resets, row):
    """Whether the state is reset before this step."""
    return resets != 0 and flags(resets)[row] != 0


def locate(pointers, first, last, row, resets, rows, pitch, start, size, initial, restart):
    """Write the addresses of a state before a step: in the previous step, the initial or the restart state."""
    for rank in range(first, last):
        if is_reset(resets, row + rank):
            pointers[rank] = restart + rank * pitch
        elif rank >= size:
            pointers[rank] = initial + rank * pitch
        else:
            pointers[rank] = rows + (start + rank) * pitch


@instruction(INT64)
def _prefetch(builder, address):
    """Prefetch the cache line at an address."""
    call(builder, "llvm.prefetch.p0", ir.VoidType(), at(builder, address, INT8), INT32(0), INT32(3), INT32(1))


def fetch(rows, pitch, count, columns, width, size):
    """Prefetch `size` bytes at the same offset in each column of some rows. Columns are `width` bytes apart."""
    for row in range(count):
        for column in range(columns):
            for byte in range(0, size, 64):
                _prefetch(rows + row * pitch + column * width + byte)


_FUNCTIONS = shape_of_tiles, rows_of_tile, blocks_of_tile, point, fetch, locate, is_reset
FUNCTIONS: dict[str, Any] = {"words": words, "flags": flags} | {f.__name__: f for f in _FUNCTIONS}
"""The names that a kernel imports."""
