"""The names that a printed kernel may use."""

import re
from typing import Any

from glassgate.engines.numba_cpu import atomics, runtime
from glassgate.engines.numba_cpu.processor import Processor
from glassgate.engines.numba_cpu.simd import bfloat16, int8, mathematics, tiles, unpacked, words
from glassgate.engines.numba_cpu.simd.addresses import memory as own_memory
from glassgate.engines.numba_cpu.simd.blocking import blocking
from glassgate.engines.numba_cpu.simd.microkernel import microkernel
from glassgate.engines.numba_cpu.simd.transpose import transpose
from glassgate.engines.numba_cpu.simd.vector import memory


def names(text: str, bits: int, processor: Processor) -> dict[str, Any]:
    """Everything that the text needs, for vectors of this type: mathematics by torch's names, all else with `_` too.

    In a cell's kernel only mathematics and the author's values have names without an underscore in front.
    """
    lanes = processor.lanes(bits)
    found: dict[str, Any] = {"LANES": lanes, "BYTES": bits // 8}
    found |= runtime.FUNCTIONS | atomics.FUNCTIONS | memory(bits, lanes)._asdict()
    for sums in {int(n) for n in re.findall(r"\b_?microkernel_(\d+)\(", text)}:
        packed = microkernel(bits, lanes, sums, processor)
        found[f"microkernel_{sums}"] = unpacked.microkernel(packed, bits, lanes, sums, processor.rounds)
        found[f"MOST_ROWS_{sums}"], found[f"ROOM_{sums}"] = blocking(sums, processor)
    for size in {int(n) for n in re.findall(r"\bmemory_(\d+)\(", text)}:
        found[f"memory_{size}"] = own_memory(size)
    for sums in {int(n) for n in re.findall(r"\blong_microkernel_(\d+)\(", text)}:
        packed = microkernel(bits, lanes, sums, processor, long=True)
        found[f"long_microkernel_{sums}"] = unpacked.microkernel(packed, bits, lanes, sums, processor.rounds)
        found[f"MOST_ROWS_{sums}"], found[f"ROOM_{sums}"] = blocking(sums, processor)
    if "strided_microkernel(" in text:
        found["strided_microkernel"] = microkernel(bits, lanes, 1, processor, long=True, strided=True)
        found["MOST_ROWS_1"], found["ROOM_1"] = blocking(1, processor)
    pairs = bfloat16.pairs_of(processor) if processor.bfloat16 else None
    if "transpose(" in text:
        found["transpose"] = transpose(bits, lanes, pairs, whole=bool(processor.tiles))
    found |= {f.__name__: f for f in words.LAYOUT}
    found |= words.functions(bits, lanes) if pairs is None else bfloat16.functions(processor)
    if processor.integers and bits == 32:
        found |= int8.functions(processor)
    if processor.tiles:
        found |= tiles.functions(processor.tiles)
    return found | {f"_{name}": value for name, value in found.items()} | mathematics.FUNCTIONS
