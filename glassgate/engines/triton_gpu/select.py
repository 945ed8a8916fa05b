"""Selects the kernel that runs a pass, and the extents of its blocks, by the cost model in `costs.py`."""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from glassgate.engines.triton_gpu import costs
from glassgate.engines.triton_gpu.emit import Kernel
from glassgate.engines.triton_gpu.launch import Blocks, Selected
from glassgate.engines.triton_gpu.phases import Phases
from glassgate.engines.triton_gpu.products import gates_of

STEPS = {torch.float32: (16, 4), torch.bfloat16: (64, 8), torch.float16: (64, 8)}
"""Columns per iteration of a product, and groups of threads, of kernel C."""


class Chip(NamedTuple):
    """The properties of a GPU that select a kernel.

    Attributes:
        multiprocessors: their number.
        shared: bytes of shared memory that a program can use.
    """

    multiprocessors: int
    shared: int

    @classmethod
    def of(cls, device: torch.device) -> "Chip | None":
        """The properties of a device; None where the interpreter runs."""
        if device.type != "cuda":
            return None
        found = torch.cuda.get_device_properties(device)
        return cls(found.multi_processor_count, found.shared_memory_per_block_optin)  # type: ignore[attr-defined]


def power_of_two(n: int, least: int = 1, most: int = 1 << 30) -> int:
    """The smallest power of two that is not below n, within limits."""
    return min(max(1 << max(n - 1, 0).bit_length(), least), most)


def blocks_of(kernel: Kernel, sizes: Mapping[str, int], dtype: torch.dtype) -> Blocks:
    """The blocks of a kernel that is launched once per step.

    Args:
        kernel: the kernel.
        sizes: the extents N, H and P, and the number of heads.
        dtype: of products.
    """
    widest = max(sizes["H"], sizes["P"])
    if kernel.by_rows:
        units = power_of_two(widest)
        return Blocks(1, units, 16, power_of_two(units // 64, 4, 8))
    columns, warps = STEPS[dtype]
    return Blocks(power_of_two(sizes["N"], 16, 64), power_of_two(widest // sizes["heads"], 16, 32), columns, warps)


def selected(phases: Phases, sizes: Mapping[str, int], dtype: torch.dtype, chip: Chip | None) -> Selected:
    """The fastest kernel that can run a pass, by the cost model.

    Args:
        phases: of the pass.
        sizes: the extents N, H and P, and the number of heads.
        dtype: of products.
        chip: the GPU; None in the interpreter, which runs kernel C.
    """
    found = [Selected("steps", steps_time(phases, sizes, dtype))]
    if chip is not None and phases.products:
        found += [v for v in (solo(phases, sizes, dtype, chip), grid(phases, sizes, dtype, chip)) if v is not None]
    return min(found, key=lambda each: each.microseconds)


def weight_bytes(phases: Phases, sizes: Mapping[str, int], dtype: torch.dtype) -> int:
    """The bytes of all weights that a step reads."""
    return sum(
        gates_of(phases, product) * sizes[out] * sizes[columns] // (sizes["heads"] if by_head else 1) * dtype.itemsize
        for product, out, columns, by_head in phases.widths
    )


def steps_time(phases: Phases, sizes: Mapping[str, int], dtype: torch.dtype) -> float:
    """Microseconds per step of kernel C."""
    launches = len(phases.all) - 1 + (len(phases.products) if phases.by_rows else 0)
    return launches * costs.LAUNCH + weight_bytes(phases, sizes, dtype) / costs.L2_BYTES + costs.POINTWISE


def solo(phases: Phases, sizes: Mapping[str, int], dtype: torch.dtype, chip: Chip) -> Selected | None:
    """Kernel A: one program for all units of some rows, or of one head."""
    heads, H, P = sizes["heads"], sizes["H"], sizes["P"]
    units = power_of_two(max(H, P) // heads, 16)
    size = weight_bytes(phases, {**sizes, "H": units * heads, "P": units * heads}, dtype) // heads
    # Sums over units need so many registers that kernel A spills; docs/gpu-compiled.md shows kernel C without spills.
    if phases.by_rows or size > min(costs.SOLO_BYTES, chip.shared) or (heads > 1 and "P" in phases.axes):
        return None
    rows = 16
    waves = -(-(-(-sizes["N"] // rows) * heads) // chip.multiprocessors)
    time = waves * (rows * size / dtype.itemsize / costs.PRODUCTS + costs.POINTWISE)
    return Selected("solo", time, Blocks(rows, units, units, 4 if units < 64 else 8))


def grid(phases: Phases, sizes: Mapping[str, int], dtype: torch.dtype, chip: Chip) -> Selected | None:
    """Kernel B: units distributed over programs that run at the same time and meet after each phase."""
    heads, widest = sizes["heads"], max(sizes["H"], sizes["P"])
    if phases.by_rows:
        return None
    rows = power_of_two(sizes["N"], 16, 64)
    of_rows, columns = -(-sizes["N"] // rows), power_of_two(widest // heads, 16, 256)
    chunks = -(-(widest // heads) // columns)
    for units in (16, 32):
        programs = of_rows * heads * -(-(widest // heads) // units)
        size = sum(gates_of(phases, product) for product in phases.products) * chunks * columns * units * dtype.itemsize
        if programs <= chip.multiprocessors and size <= costs.GRID_SHARE * chip.shared:
            time = (
                (len(phases.all) - 1) * costs.BARRIER + rows * size / dtype.itemsize / costs.PRODUCTS + costs.POINTWISE
            )
            return Selected("grid", time, Blocks(rows, units, columns, 8), chunks)
    return None
