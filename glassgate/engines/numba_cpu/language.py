"""The names that a printed kernel may use."""

import re
from typing import Any

from glassgate.engines.numba_cpu import loop, mathematics, meeting
from glassgate.engines.numba_cpu.panels import blocking
from glassgate.engines.numba_cpu.processor import Processor
from glassgate.engines.numba_cpu.tile import tile
from glassgate.engines.numba_cpu.transpose import transpose
from glassgate.engines.numba_cpu.vector import memory


def names(text: str, bits: int, processor: Processor) -> dict[str, Any]:
    """Everything that the text needs, for vectors of this type."""
    lanes = processor.lanes(bits)
    found: dict[str, Any] = {"LANES": lanes, "BYTES": bits // 8}
    found |= mathematics.FUNCTIONS | loop.FUNCTIONS | meeting.FUNCTIONS | memory(bits, lanes)._asdict()
    for sums in {int(n) for n in re.findall(r"\btile_(\d+)\(", text)}:
        found[f"tile_{sums}"] = tile(bits, lanes, sums, processor)
        found[f"MOST_ROWS_{sums}"], found[f"ROOM_{sums}"] = blocking(sums, processor)
    for size in {int(n) for n in re.findall(r"\bmemory_(\d+)\(", text)}:
        found[f"memory_{size}"] = loop.memory(size)
    for sums in {int(n) for n in re.findall(r"\blong_tile_(\d+)\(", text)}:
        found[f"long_tile_{sums}"] = tile(bits, lanes, sums, processor, long=True)
        found[f"MOST_ROWS_{sums}"], found[f"ROOM_{sums}"] = blocking(sums, processor)
    if "strided_tile(" in text:
        found["strided_tile"] = tile(bits, lanes, 1, processor, long=True, strided=True)
        found["MOST_ROWS_1"], found["ROOM_1"] = blocking(1, processor)
    if "transpose(" in text:
        found["transpose"] = transpose(bits, lanes)
    return found
