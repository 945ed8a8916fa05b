"""The words that a kernel is called with: what sizes alone decide is written once, for all calls of these sizes."""

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.numba_cpu.buffers import Timetable, even_timetable, tensor_words, two_turns
from glassgate.engines.numba_cpu.panels import MOST_PANELS, MOST_ROWS
from glassgate.engines.numba_cpu.printer import Kernel
from glassgate.engines.trace import Trace

ALIGN = 64


class Sizes(NamedTuple):
    """All that decides a layout, beside the kernel."""

    N: int
    steps: int
    H: int
    P: int
    bytes: int
    """Of one number."""
    lanes: int
    reverse: bool
    save: bool
    ragged: bool
    """Whether steps differ in their rows."""
    unasked: tuple[bool, ...]
    """Which states nobody asks for: two steps of them take turns in a small buffer."""
    unreached: tuple[bool, ...]
    """Which states no gradient reaches at every step; empty in a forward pass."""


class Layout(NamedTuple):
    """What calls of the same sizes have in common; never changed once it is made.

    Attributes:
        words: constants where sizes decide them, zero where each call writes an address.
        slots: the place of each word.
        addresses: for each of `buffers.tensors` that the kernel takes, its number there and its slot.
        places: where in a job's own scratch memory a word points, in bytes.
        scratch: the bytes of that memory.
        work: about how many multiplications a row takes at each step.
        time: which rows each step has; None where that differs from call to call.
        turns: the first row of each step, for states whose steps take turns.
        nothing: zeros, which stand for tensors that a call does without.
    """

    words: "array[int]"
    slots: dict[str, int]
    addresses: list[tuple[int, int]]
    places: dict[str, int]
    scratch: int
    work: int
    time: Timetable | None
    turns: Tensor
    nothing: Tensor


@lru_cache(1024)
def layout(kernel: Kernel, cell: Cell, trace: Trace, sizes: Sizes) -> Layout:
    """The layout of a kernel's calls."""
    time = None if sizes.ragged else even_timetable(sizes.steps, sizes.N)
    widest = max(len(trace.ih), len(trace.hh_only), 1) * sizes.H * sizes.bytes
    nothing = torch.zeros(max(widest, 8 * sizes.steps), dtype=torch.uint8)
    constants = _loop(sizes) | _heads(cell, sizes) | _pitches(cell, trace, sizes)
    absent = ["bias_ih", "bias_hh", *(f"{name}_noise_starts" for name in cell.noise)]
    absent += [f"d_{name}_rows" for name, gone in zip(cell.state, sizes.unreached, strict=False) if gone]
    constants |= dict.fromkeys(absent, nothing.data_ptr())
    if time is not None:
        constants |= times(time, cell, sizes.unasked)
    turns = two_turns(sizes.steps, sizes.N, sizes.reverse)
    taking_turns = [name for name, alone in zip(cell.state, sizes.unasked, strict=True) if alone]
    constants |= {f"{name}_starts": turns[1:].data_ptr() for name in taking_turns}
    places, at = {}, 0
    for name, size in _scratch(kernel, sizes).items():
        places[name] = at
        at += size + -size % ALIGN
    slots = {name: slot for slot, name in enumerate(kernel.words)}
    words = array("q", [constants.get(name, 0) for name in slots])
    named = tensor_words(cell, trace, len(kernel.products))
    addresses = [(k, slots[name]) for k, name in enumerate(named) if name in slots]
    a_row = sum(max(len(product.gates), 1) * sizes.P * sizes.H for product in kernel.products)
    work = a_row // cell.heads + 50 * sizes.H
    return Layout(words, slots, addresses, places, at + ALIGN, work, time, turns, nothing)


def times(time: Timetable, cell: Cell, unasked: Sequence[bool]) -> dict[str, int]:
    """Where it is written which rows each step has, of all buffers that have every step."""
    starts = time.starts[1:].data_ptr()
    names = [name for name, taking_turns in zip(cell.state, unasked, strict=True) if not taking_turns]
    names += [f"{name}_noise" for name, noise in cell.noise.items() if noise.per_step]
    return {"sizes": time.sizes[1:].data_ptr(), "starts": starts} | {f"{name}_starts": starts for name in names}


def apart(width: int, lanes: int) -> int:
    """How far apart rows lie whose columns are read downwards, so that these do not meet in one place of the cache."""
    return width + lanes


def _loop(sizes: Sizes) -> dict[str, int]:
    """Which way time runs, and between which units."""
    H, P, last = sizes.H, sizes.P, max(sizes.steps - 1, 0)
    backwards = sizes.reverse != bool(sizes.unreached)
    direction = {"steps": sizes.steps, "origin": last if backwards else 0, "turn": -1 if backwards else 1}
    return direction | {"H": H, "P": P, "unit_1": H, "out_1": P, "parties": 1, "save": int(sizes.save)}


def _heads(cell: Cell, sizes: Sizes) -> dict[str, int]:
    head = sizes.H // cell.heads
    blocks = -(-head // sizes.lanes)
    return {"head_size": head, "head_blocks": blocks, "block_0": 0, "block_1": cell.heads * blocks}


def _pitches(cell: Cell, trace: Trace, sizes: Sizes) -> dict[str, int]:
    """How wide the rows of each buffer are."""
    H, P, columns = sizes.H, sizes.P, trace.gradients
    states = dict.fromkeys(cell.state, H) | {cell.state[0]: P}
    widths = {"H": H, "P": P, "ih": len(trace.ih) * H, "hh": len(trace.hh_only) * H, "row": trace.row_columns, "hr": P}
    widths |= states | {f"{name}_noise": states.get(noise.state or "", H) for name, noise in cell.noise.items()}
    widths |= {f"d_{name}": width for name, width in states.items()}
    widths |= {f"d_{name}": 0 for name, gone in zip(cell.state, sizes.unreached, strict=False) if gone}
    widths |= {name: columns[name] * H for name in ("raw", "d_parameter")}
    widths |= {"d_pre": apart(columns["d_pre"] * H, sizes.lanes)}
    widths |= {name: columns[name] * P for name in ("left", "d_hr")}
    widths |= {f"gate_{name}": H for name in trace.recorded} | {f"d_gate_{name}": H for name in trace.recorded}
    widths |= {f"d_new_{name}": width for name, width in states.items()}
    return {f"{name}_pitch": width * sizes.bytes for name, width in widths.items()}


def _scratch(kernel: Kernel, sizes: Sizes) -> dict[str, int]:
    """Memory of one job alone, in bytes: the sums of a tile, addresses of rows, temporaries."""
    vector, width = sizes.lanes * sizes.bytes, {"H": sizes.H, "P": sizes.P}
    needed = {name: 8 * sizes.N for name in kernel.words if name.endswith("_prev_rows")}
    for k, product in enumerate(kernel.products):
        needed[f"sums_{k}"] = MOST_ROWS * MOST_PANELS * len(product.results) * vector
        needed[f"left_{k}"] = 8 * sizes.N
    for name, axis in kernel.temporaries.items():
        needed[f"{name}_ranks"] = sizes.N * width[axis] * sizes.bytes
    for name, axis in kernel.of_one_row.items():
        needed[f"{name}_ranks"] = -(-width[axis] // sizes.lanes) * vector
    for k in range(kernel.row_sums):
        needed[f"sum_{k}"] = sizes.N * vector
        needed[f"total_{k}"] = sizes.N * sizes.bytes
    return {name: size for name, size in needed.items() if name in kernel.words}
