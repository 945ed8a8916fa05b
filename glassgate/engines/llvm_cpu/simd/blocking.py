"""Tile sizes of the matrix product, in rows and packed blocks. A block is one vector of units; `pack.py` packs them."""

from collections.abc import Iterable
from typing import NamedTuple

from glassgate.engines.llvm_cpu.processor import Processor

MOST_ROWS, MOST_BLOCKS, LONG_BLOCKS = 6, 8, 4
SIDE = 16
"""The number of rows and of columns of a tile register."""
TILE_ROWS, TILE_AREA = 2 * SIDE, 4 * SIDE
"""On tile registers: the largest number of rows, and the largest number of rows times blocks."""


class Blocking(NamedTuple):
    """The tiles whose sums fit into the registers."""

    most_rows: int
    most_area: int
    """The largest number of rows times blocks."""

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The numbers of rows and blocks of all tiles."""
        return self._shapes(range(1, self.most_rows + 1), MOST_BLOCKS)

    @property
    def long_shapes(self) -> list[tuple[int, int]]:
        """The tiles for products of many rows. There are few of them, because each one costs compile time."""
        return self._shapes(sorted({1, min(2, self.most_rows), self.most_rows}), LONG_BLOCKS)

    def _shapes(self, rows: Iterable[int], most_blocks: int) -> list[tuple[int, int]]:
        blocks = [2**k for k in range(most_blocks.bit_length())]
        return [(r, p) for r in rows for p in blocks if p == 1 or r * p <= self.most_area]


def blocking(vectors: int, processor: Processor) -> Blocking:
    """The tiles for `vectors` sums per unit. Three quarters of the registers hold sums."""
    if processor.tiles:
        return Blocking(TILE_ROWS, max(1, TILE_AREA // vectors))
    # Products of integers that take several instructions need registers for intermediate results.
    quarters = 2 if processor.integers in ("madd", "portable", "emulated") else 3
    sums = processor.registers * quarters // 4
    return Blocking(max(1, min(MOST_ROWS, sums // vectors)), max(1, sums // vectors))


def rows_at_once(processor: Processor) -> int:
    """The number of rows that a product processes before it reads the packed blocks again."""
    return 2 * TILE_ROWS if processor.tiles else 8 * MOST_ROWS


def pack_multiple(processor: Processor) -> int:
    """The length of packed columns of bfloat16 is a multiple of this: a word, or a row of a tile register."""
    return 2 * SIDE if processor.tiles else 2


def size_of_sums(vectors: int, processor: Processor) -> int:
    """The size in bytes of all sums of a tile."""
    most = max(blocking(vectors, processor)) if processor.tiles else MOST_ROWS * MOST_BLOCKS
    return most * vectors * processor.width
