"""Which kernel runs a pass, and the extents of its blocks."""

from collections.abc import Mapping

from glassgate.engines.triton_gpu.emit import Kernel
from glassgate.engines.triton_gpu.launch import Blocks


def power_of_two(n: int, least: int = 1, most: int = 1 << 30) -> int:
    """The smallest power of two that is not below n, within limits."""
    return min(max(1 << max(n - 1, 0).bit_length(), least), most)


def blocks_of(kernel: Kernel, sizes: Mapping[str, int]) -> Blocks:
    """The blocks of a kernel that is launched once per step."""
    widest = max(sizes["H"], sizes["P"])
    if kernel.by_rows:
        return Blocks(1, power_of_two(widest), 16)
    return Blocks(power_of_two(sizes["N"], 16, 64), power_of_two(widest // sizes["heads"], 16, 32), 64)
