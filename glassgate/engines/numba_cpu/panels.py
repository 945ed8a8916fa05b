"""How many rows and panels a tile of the product takes; a panel is one vector of units, `dense.py` packs them."""

from typing import NamedTuple

from glassgate.engines.numba_cpu.processor import Processor

MOST_ROWS, MOST_PANELS = 6, 8


class Blocking(NamedTuple):
    """What fits the registers, for `vectors` sums a unit."""

    most_rows: int
    room: int
    """Rows times panels."""

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and panels of every tile."""
        panels = [2**k for k in range(MOST_PANELS.bit_length())]
        return [(r, p) for r in range(1, self.most_rows + 1) for p in panels if p == 1 or r * p <= self.room]


def blocking(vectors: int, processor: Processor) -> Blocking:
    """Three quarters of the registers hold sums; few sums a unit leave space for more panels."""
    sums = processor.registers * 3 // 4
    return Blocking(max(1, min(MOST_ROWS, sums // vectors)), max(1, sums // vectors))
