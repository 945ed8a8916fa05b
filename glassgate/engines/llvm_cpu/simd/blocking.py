"""The sizes of the tiles of a matrix product, in rows and packed blocks. `pack.py` packs one vector of units per block.

A tile is the part of the result that one call of the microkernel computes.
"""

from collections.abc import Iterable
from typing import NamedTuple

from glassgate.engines.llvm_cpu.processor import Processor

MAX_ROWS, MAX_BLOCKS, MAX_LONG_BLOCKS = 6, 8, 4
"""On vector registers: the largest number of rows and of blocks of a tile, and of blocks in products of many rows."""
MAX_ROWS_OF_LANES = 5
"""The largest number of rows if instructions multiply by lanes: 5 rows by 4 blocks are 20 of 32 registers."""
SIDE = 16
"""The number of rows and of columns of a tile register."""
AMX_ROWS, AMX_AREA = 2 * SIDE, 4 * SIDE
"""On tile registers: the largest number of rows of a tile, and the largest number of rows times vectors of sums."""


class Blocking(NamedTuple):
    """The tiles whose sums fit into the registers."""

    max_rows: int
    max_area: int
    """The largest number of rows times blocks."""

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The numbers of rows and blocks of all tiles."""
        return self._shapes(range(1, self.max_rows + 1), MAX_BLOCKS)

    @property
    def long_shapes(self) -> list[tuple[int, int]]:
        """The tiles for products of many rows. There are few of them, because each one costs compile time."""
        return self._shapes(sorted({1, min(2, self.max_rows), self.max_rows}), MAX_LONG_BLOCKS)

    def _shapes(self, rows: Iterable[int], max_blocks: int) -> list[tuple[int, int]]:
        blocks = [2**k for k in range(max_blocks.bit_length())]
        return [(r, p) for r in rows for p in blocks if p == 1 or r * p <= self.max_area]


def blocking(sums: int, processor: Processor) -> Blocking:
    """Return the tiles. `sums` is the number of sums per unit. Sums occupy 4/8 to 6/8 of the vector registers."""
    if processor.tiles:
        return Blocking(AMX_ROWS, max(1, AMX_AREA // sums))
    # Integers are multiplied in several instructions, whose intermediate results need registers. With multiplication by
    # lanes, each row needs a register for its next numbers; LLVM would store sums in memory if they filled 6/8.
    has_intermediate = processor.integers in ("madd", "portable", "emulated")
    eighths = 4 if has_intermediate else 5 if processor.multiplies_by_lanes else 6
    max_area = max(1, processor.registers * eighths // 8 // sums)
    return Blocking(min(_max_rows(processor), max_area), max_area)


def rows_at_once(processor: Processor) -> int:
    """Return the number of rows that a GEMM over whole sequences multiplies in one pass over the packed blocks."""
    return 2 * AMX_ROWS if processor.tiles else 8 * _max_rows(processor)


def _max_rows(processor: Processor) -> int:
    return MAX_ROWS_OF_LANES if processor.multiplies_by_lanes else MAX_ROWS


def pack_multiple(processor: Processor) -> int:
    """The number of bfloat16 in a row of a tile register; without AMX, in a word. Columns are padded to multiples."""
    return 2 * SIDE if processor.tiles else 2


def size_of_sums(sums: int, processor: Processor) -> int:
    """Return the largest size in bytes of the sums of one tile."""
    max_area = max(blocking(sums, processor)) if processor.tiles else MAX_ROWS * MAX_BLOCKS
    return max_area * sums * processor.width
