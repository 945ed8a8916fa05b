"""How a direction's memory lies: what sizes alone decide."""

from glassgate.engines.numba_cpu.panels import MOST_PANELS, MOST_ROWS
from glassgate.engines.numba_cpu.printer import Kernel
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.work import Facts
from glassgate.engines.plan import Plan, Sizes


def constants(plan: Plan, sizes: Sizes) -> Facts:
    """What a kernel asks for by name and every call of these sizes answers alike."""
    head = sizes.H // plan.cell.heads
    blocks = -(-head // host().lanes(sizes.bits))
    heads = {"head_size": head, "head_blocks": blocks, "block_0": 0, "block_1": plan.cell.heads * blocks}
    pitches = {f"{name}_pitch": width * sizes.bytes for name, width in widths(plan, sizes).items()}
    return {"H": sizes.H, "P": sizes.P} | heads | pitches


def widths(plan: Plan, sizes: Sizes) -> dict[str, int]:
    """How many numbers apart the rows of each buffer lie."""
    H, P, trace, cell = sizes.H, sizes.P, plan.trace, plan.cell
    columns, states = trace.gradients, plan.of_states(sizes)
    found = {"H": H, "P": P, "ih": len(trace.ih) * H, "hh": len(trace.hh_only) * H, "row": trace.row_columns, "hr": P}
    found |= states | {f"{name}_noise": states.get(noise.state or "", H) for name, noise in cell.noise.items()}
    found |= {f"d_{name}": width for name, width in states.items()}
    found |= {name: columns[name] * H for name in ("raw", "d_parameter")}
    # Columns of it are read downwards: so they do not meet in one place of the cache.
    found |= {"d_pre": columns["d_pre"] * H + host().lanes(sizes.bits)}
    found |= {name: columns[name] * P for name in ("left", "d_hr")}
    found |= {f"gate_{name}": H for name in trace.recorded} | {f"d_gate_{name}": H for name in trace.recorded}
    return found | {f"d_new_{name}": width for name, width in states.items()}


def scratch(kernel: Kernel, sizes: Sizes) -> dict[str, int]:
    """Memory of one job alone, in bytes: the sums of a tile, addresses of rows, temporaries."""
    vector, width = host().width, {"H": sizes.H, "P": sizes.P}
    needed = {name: 8 * sizes.N for name in kernel.words if name.endswith("_prev_rows")}
    for k, product in enumerate(kernel.products):
        needed[f"sums_{k}"] = MOST_ROWS * MOST_PANELS * len(product.results) * vector
        needed[f"left_{k}"] = 8 * sizes.N
    for name, axis in kernel.temporaries.items():
        needed[f"{name}_ranks"] = sizes.N * width[axis] * sizes.bytes
    for name, axis in kernel.of_one_row.items():
        needed[f"{name}_ranks"] = -(-width[axis] * sizes.bytes // vector) * vector
    for k in range(kernel.row_sums):
        needed[f"sum_{k}"] = sizes.N * vector
        needed[f"total_{k}"] = sizes.N * sizes.bytes
    return {name: size for name, size in needed.items() if name in kernel.words}
