"""Selects the kernel that runs a pass, and the sizes of its blocks, by the cost model in `costs.py`.

`launch.py` defines the kernels A ("solo"), B ("grid") and C ("steps").
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from glassgate.engines.triton_gpu import costs
from glassgate.engines.triton_gpu.emit import STAGES
from glassgate.engines.triton_gpu.kernel import Kernel
from glassgate.engines.triton_gpu.launch import Blocks, KernelChoice
from glassgate.engines.triton_gpu.phases import Phases
from glassgate.engines.triton_gpu.products import gate_count
from glassgate.user_warning import warn_user

COLUMNS_AND_WARPS = {4: (32, 4), 2: (64, 8)}
"""For kernel C, the columns per iteration of a product and the maximum number of warps. Keys are the bytes per element
of the operands."""

SHARED_MARGIN = 8192
"""The bytes of shared memory that remain for other purposes, such as layout conversions."""

MAX_LEFT_OPERANDS = 4
"""The largest number of left operands that kernels A and B have in shared memory at the same time."""

MAX_ARRIVALS = 2**31 - 1
"""The largest number of arrivals of all programs at all barriers of a call that kernel B can count."""


class Chip(NamedTuple):
    """The properties of a GPU that determine which kernel is fastest.

    Attributes:
        multiprocessors: the number of multiprocessors.
        shared: the bytes of shared memory that a program can use.
    """

    multiprocessors: int
    shared: int

    @classmethod
    def of(cls, device: torch.device) -> "Chip | None":
        """The properties of a device; None if kernels run in the interpreter."""
        if device.type != "cuda":
            return None
        properties = torch.cuda.get_device_properties(device)
        return cls(properties.multi_processor_count, properties.shared_memory_per_block_optin)  # type: ignore[attr-defined]


def power_of_two(n: int, least: int = 1, most: int = 1 << 30) -> int:
    """The smallest power of two that is at least n, limited to the range from `least` to `most`."""
    return min(max(1 << max(n - 1, 0).bit_length(), least), most)


def blocks_of(
    kernel: Kernel, sizes: Mapping[str, int], dtype: torch.dtype, chip: Chip | None = None, directions: int = 1
) -> Blocks:
    """The blocks of a kernel that is launched once per step.

    Args:
        kernel: the kernel.
        sizes: the extents N, H and P, and the number of heads.
        dtype: the type of matrix products.
        chip: the GPU; None in the interpreter.
        directions: the number of directions that run at the same time.
    """
    widest = max(sizes["H"], sizes["P"])
    if kernel.by_rows:
        units = power_of_two(widest)
        return Blocks(1, units, 16, power_of_two(units // 64, 4, 8))
    if not kernel.max_gates:  # without products, one kernel with these blocks suits all batch sizes
        return Blocks(16, 32, 16)
    columns, most_warps = COLUMNS_AND_WARPS[dtype.itemsize]
    rows = power_of_two(sizes["N"], 16, 64)
    units = power_of_two(widest // sizes["heads"], 16, 32)
    if chip is not None and directions * count_programs(sizes, rows, units) < chip.multiprocessors:
        units = 16

    def fits() -> bool:
        """Whether the operands of all stages of a product fit into shared memory, with a margin."""
        size = STAGES * kernel.max_gates * columns * (rows + units) * dtype.itemsize
        return chip is None or size + SHARED_MARGIN <= chip.shared

    while rows > 16 and not fits():
        rows //= 2
    while columns > 16 and not fits():
        columns //= 2
    return Blocks(rows, units, columns, min(warps_of(rows, units), most_warps))


def warps_of(rows: int, units: int) -> int:
    """The number of warps of a program with matrix products: one per block of 16 rows and 16 units, from 4 to 8."""
    return power_of_two(rows * units // 256, 4, 8)


def count_programs(sizes: Mapping[str, int], rows: int, units: int) -> int:
    """Count the programs of one direction."""
    width = max(sizes["H"], sizes["P"]) // sizes["heads"]
    return -(-sizes["N"] // rows) * sizes["heads"] * -(-width // units)


def select_kernel(
    phases: Phases, sizes: Mapping[str, int], dtype: torch.dtype, chip: Chip | None, directions: int = 1
) -> KernelChoice:
    """Return the fastest kernel that can run a pass, by the cost model.

    Args:
        phases: the phases of the pass.
        sizes: the extents T, N, H and P, and the number of heads.
        dtype: the type of matrix products.
        chip: the GPU; None in the interpreter, which runs kernel C.
        directions: the number of directions that run at the same time.
    """
    if chip is None:
        return KernelChoice("steps", time_without_products(phases))
    choices = [estimate_steps(phases, sizes, dtype, chip, directions)]
    if phases.products:
        others = (f(phases, sizes, dtype, chip, directions) for f in (estimate_solo, estimate_grid))
        choices += [each for each in others if each is not None]
    refused = {each: _refused.get((phases, dtype, chip, directions, *each.key)) for each in choices}
    reasons = tuple(f"{each.name}: {refused[each]}" for each in choices if refused[each])
    available = (each for each in choices if not refused[each])
    return min(available, key=lambda each: each.microseconds)._replace(refused=reasons)


def refuse(
    choice: KernelChoice, phases: Phases, dtype: torch.dtype, chip: Chip | None, directions: int, error: Exception
) -> None:
    """Exclude kernel A or B from later choices for a pass. Warn once per kernel and kind of GPU.

    Args:
        choice: the kernel that did not start.
        phases, dtype, chip, directions: as in `select_kernel`.
        error: the reason.
    """
    _refused[phases, dtype, chip, directions, *choice.key] = str(error)
    if (choice.kind, chip) not in _warned:
        _warned.add((choice.kind, chip))
        warn_user(
            f"this GPU cannot run {choice.name} for a layer ({error}); another kernel runs the layer, and "
            "glassgate.explain names it"
        )


_refused: dict[tuple[object, ...], str] = {}
"""Why a GPU could not start a kernel, by the arguments of `refuse`."""

_warned: set[tuple[str, Chip | None]] = set()


def weight_bytes(phases: Phases, sizes: Mapping[str, int], dtype: torch.dtype) -> int:
    """The bytes of all weights that a step reads."""
    return sum(
        gate_count(phases, product) * sizes[out] * sizes[columns] // (sizes["heads"] if by_head else 1) * dtype.itemsize
        for product, out, columns, by_head in phases.product_shapes
    )


def time_without_products(phases: Phases) -> float:
    """The microseconds per step of kernel C without the matrix products."""
    launches = len(phases.all) - 1 + (len(phases.products) if phases.by_rows else 0)
    return launches * costs.LAUNCH_TIME + costs.POINTWISE_TIME


def start_time(launches: int, loaded_bytes: int, sizes: Mapping[str, int], chip: Chip) -> float:
    """The microseconds per step for the launches of a call and for loading the weights of a program."""
    load = loaded_bytes / (costs.L2_BANDWIDTH / chip.multiprocessors)
    return (launches * costs.LAUNCH_TIME + load) / max(sizes["T"], 1)


def estimate_steps(
    phases: Phases, sizes: Mapping[str, int], dtype: torch.dtype, chip: Chip, directions: int
) -> KernelChoice:
    """Estimate kernel C. In each step, every multiprocessor with a program reads weights from the L2 cache."""
    rows = power_of_two(sizes["N"], 16, 64)
    used = min(1.0, directions * count_programs(sizes, rows, 16) / chip.multiprocessors)
    size = directions * -(-sizes["N"] // rows) * weight_bytes(phases, sizes, dtype)
    time = time_without_products(phases) + size / (used * costs.L2_BANDWIDTH) + start_time(1, 0, sizes, chip)
    return KernelChoice("steps", time)


def estimate_solo(
    phases: Phases, sizes: Mapping[str, int], dtype: torch.dtype, chip: Chip, directions: int
) -> KernelChoice | None:
    """Estimate kernel A; None if it cannot run the pass."""
    heads, H, P = sizes["heads"], sizes["H"], sizes["P"]
    units = power_of_two(max(H, P) // heads, 16)
    size = weight_bytes(phases, {**sizes, "H": units * heads, "P": units * heads}, dtype) // heads
    rows = 16
    # Sums over units need so many registers that kernel A spills. In benchmarks/results/gpu/compiled.md, kernel C does
    # not spill.
    if phases.by_rows or size > costs.MAX_SOLO_BYTES or (heads > 1 and "P" in phases.axes):
        return None
    if size + MAX_LEFT_OPERANDS * rows * units * dtype.itemsize > chip.shared:
        return None
    waves = -(-directions * -(-sizes["N"] // rows) * heads // chip.multiprocessors)
    time = waves * (rows * size / dtype.itemsize / costs.PRODUCT_RATE + costs.POINTWISE_TIME) + start_time(
        1, size, sizes, chip
    )
    warps = 4 if units < 64 else 8  # with 64 units, 4 warps would suffice but spill
    return KernelChoice("solo", time, Blocks(rows, units, units, warps))


def estimate_grid(
    phases: Phases, sizes: Mapping[str, int], dtype: torch.dtype, chip: Chip, directions: int
) -> KernelChoice | None:
    """Estimate kernel B; None if it cannot run the pass. All of its programs must run at the same time."""
    heads, widest = sizes["heads"], max(sizes["H"], sizes["P"])
    if phases.by_rows:
        return None
    # With 64 rows, the left operand spills.
    rows, columns = power_of_two(sizes["N"], 16, 32), power_of_two(widest // heads, 16, 256)
    chunks, barriers = -(-(widest // heads) // columns), len(phases.all) - 1
    for units in (16, 32) if heads == 1 else (32, 16):  # with heads, programs of 16 units spill
        size = (
            sum(gate_count(phases, product) for product in phases.products) * chunks * columns * units * dtype.itemsize
        )
        fits = size + MAX_LEFT_OPERANDS * rows * columns * dtype.itemsize <= chip.shared
        program_count = count_programs(sizes, rows, units)
        can_count = program_count * barriers * (sizes["T"] + 1) <= MAX_ARRIVALS
        if fits and can_count and directions * program_count <= chip.multiprocessors:
            products = rows * size / dtype.itemsize / costs.PRODUCT_RATE
            time = barriers * costs.BARRIER_TIME + products + costs.POINTWISE_TIME + start_time(2, size, sizes, chip)
            warps = warps_of(rows, units) if heads == 1 else 8  # with heads, fewer warps need up to 255 registers
            return KernelChoice("grid", time, Blocks(rows, units, columns, warps), chunks)
    return None
