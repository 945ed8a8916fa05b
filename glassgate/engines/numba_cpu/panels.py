"""How many rows and panels a tile of the product takes; a panel is one vector of units, `dense.py` packs them."""

from collections.abc import Iterable
from typing import NamedTuple

from glassgate.engines.numba_cpu.processor import Processor

MOST_ROWS, MOST_PANELS, LONG_PANELS = 6, 8, 4


class Blocking(NamedTuple):
    """What fits the registers, for `vectors` sums a unit."""

    most_rows: int
    room: int
    """Rows times panels."""

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and panels of every tile."""
        return self._shapes(range(1, self.most_rows + 1), MOST_PANELS)

    @property
    def long_shapes(self) -> list[tuple[int, int]]:
        """Those that long columns of rows are cut into: few, for each costs the compiler time."""
        return self._shapes(sorted({1, min(2, self.most_rows), self.most_rows}), LONG_PANELS)

    def _shapes(self, rows: Iterable[int], most_panels: int) -> list[tuple[int, int]]:
        panels = [2**k for k in range(most_panels.bit_length())]
        return [(r, p) for r in rows for p in panels if p == 1 or r * p <= self.room]


def blocking(vectors: int, processor: Processor) -> Blocking:
    """Three quarters of the registers hold sums; few sums a unit leave space for more panels."""
    sums = processor.registers * 3 // 4
    return Blocking(max(1, min(MOST_ROWS, sums // vectors)), max(1, sums // vectors))
