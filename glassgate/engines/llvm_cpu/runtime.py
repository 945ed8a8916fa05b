"""Functions that kernels call, other than mathematics: addresses of rows, sizes of tiles, prefetching."""

from typing import Any

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import INT8, INT32, INT64, call, flags, instruction, pointer_at, words


def shape_of_tiles(rows, max_rows, max_area):
    """Return the number of rows and the number of blocks of a tile. All tiles have about the same number of rows.

    `max_rows` and `max_area`, here and in the next two functions, are attributes of `simd.blocking.Blocking`.
    """
    tile_rows = max(1, rows)
    if rows > max_rows:
        tiles = (rows + max_rows - 1) // max_rows
        tile_rows = (rows + tiles - 1) // tiles
    tile_blocks = 8
    while tile_blocks > 1 and tile_rows * tile_blocks > max_area:
        tile_blocks //= 2
    return tile_rows, tile_blocks


def microkernel_rows(rows, max_rows):
    """Return the number of rows in the next call of the microkernel, for products of many rows."""
    return max_rows if rows >= max_rows else min(rows, 2)


def microkernel_blocks(blocks, max_rows, max_area):
    """Return the number of blocks in the next call of the microkernel, for products of many rows."""
    tile_blocks = 4
    while tile_blocks > 1 and (max_rows * tile_blocks > max_area or tile_blocks > blocks):
        tile_blocks //= 2
    return tile_blocks


def write_row_addresses(pointers, first, last, base, pitch):
    """Write the addresses of the rows `first` to `last` - 1 of a buffer to a table. Rows are `pitch` bytes apart."""
    for rank in range(first, last):
        pointers[rank] = base + rank * pitch


def is_reset(resets, row):
    """Return whether the states are reset before this row. `resets` is the address of a mask of all rows, or 0."""
    return resets != 0 and flags(resets)[row] != 0


def write_state_addresses(
    pointers, first, last, first_row, resets, states, pitch, previous_row, previous_size, initial, restart
):
    """Write a table of the addresses of a state before a step, for the sequences `first` to `last` - 1.

    After a reset, this state is the restart state; at the first step of a sequence, the initial state; otherwise, the
    state after the previous step.

    Args:
        pointers: the table, with an entry per sequence.
        first, last: the range of sequences.
        first_row: the index of the step's first row in `resets`.
        resets: the address of the mask of resets, or 0.
        states: the address of the states after each step.
        pitch: the distance in bytes between the rows of `states`, of `initial` and of `restart`.
        previous_row, previous_size: the index of the first row, and the number of rows, of the previous step.
        initial, restart: the addresses of the initial and the restart states.
    """
    for rank in range(first, last):
        if is_reset(resets, first_row + rank):
            pointers[rank] = restart + rank * pitch
        elif rank >= previous_size:
            pointers[rank] = initial + rank * pitch
        else:
            pointers[rank] = states + (previous_row + rank) * pitch


@instruction(INT64)
def _prefetch_line(builder, address):
    """Prefetch the cache line at an address."""
    call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer_at(builder, address, INT8), INT32(0), INT32(3), INT32(1))


def prefetch(address, pitch, count, columns, column_pitch, size):
    """Prefetch `size` bytes of each column of some rows.

    Args:
        address: the address of the first bytes in the first row.
        pitch, count: the distance between rows in bytes, and the number of rows.
        columns, column_pitch: the number of columns, and the distance between columns in bytes.
        size: the number of bytes in each column.
    """
    for row in range(count):
        for column in range(columns):
            for byte in range(0, size, 64):
                _prefetch_line(address + row * pitch + column * column_pitch + byte)


_FUNCTIONS = (
    shape_of_tiles,
    microkernel_rows,
    microkernel_blocks,
    write_row_addresses,
    write_state_addresses,
    prefetch,
    is_reset,
)
FUNCTIONS: dict[str, Any] = {"words": words, "flags": flags} | {f.__name__: f for f in _FUNCTIONS}
"""The functions by their names in kernels."""
