"""How a matrix is laid out for the product: panels of one vector of units each, and how many a tile takes."""

from typing import NamedTuple

from torch import Tensor

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


def pack(columns: Tensor, lanes: int) -> Tensor:
    """Panels of a matrix with several columns a unit.

    Args:
        columns: `(blocks, depth, G, H)`: G sums for each of H units, in one or more independent blocks.

    Returns:
        `(panels, depth * G * lanes + lanes)`: units padded with zeros to whole vectors, one vector a panel. The end of
        each panel is unused: without it, panels side by side would meet in the same few places of the cache.
    """
    blocks, depth, G, H = columns.shape
    of_block, of_depth, of_sum, of_unit = columns.stride()
    whole, panels, pitch = H // lanes, -(-H // lanes), depth * G * lanes + lanes
    packed = columns.new_empty(blocks * panels, pitch)
    inside = packed.as_strided((blocks, panels, depth, G, lanes), (panels * pitch, pitch, G * lanes, lanes, 1))
    vectors = columns.as_strided(
        (blocks, whole, depth, G, lanes), (of_block, lanes * of_unit, of_depth, of_sum, of_unit)
    )
    if whole == panels:
        inside.copy_(vectors)
    else:
        inside[:, :whole] = vectors
        inside[:, whole] = 0.0
        inside[:, whole, :, :, : H - whole * lanes] = columns[..., whole * lanes :]
    return packed
