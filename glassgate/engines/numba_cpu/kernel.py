"""The kernels of a cell, printed and compiled when first asked for, and their calls shared out among threads."""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.numba_cpu import dense, threads
from glassgate.engines.numba_cpu.around import Wanted, gradient_products
from glassgate.engines.numba_cpu.buffers import Gradients, Inputs, Kept
from glassgate.engines.numba_cpu.call import Call
from glassgate.engines.numba_cpu.compile import Function, compiled
from glassgate.engines.numba_cpu.layout import apart
from glassgate.engines.numba_cpu.panels import MOST_ROWS
from glassgate.engines.numba_cpu.printer import Kernel, print_kernel
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.stages import Stages
from glassgate.engines.trace import Trace

__all__ = [
    "Gradients",
    "Inputs",
    "Kept",
    "Wanted",
    "backward",
    "columns_apart",
    "forward",
    "kernel_of",
    "prepare",
    "printed",
]

FEW_OPERATIONS = 2_000_000
"""Below so many multiplications a second thread costs more than it brings."""
FEW_A_STEP = 100_000
"""Below so many multiplications a step and thread, meeting at every step costs more than it brings."""
OWN_CACHE = 1_500_000
"""Bytes of weights that stay in a core's own cache; of more, each thread had better read a part."""
CROWDED_FOR = (1.0, 64.0)
"""Seconds for which threads do not meet after they had to wait for each other: at first, and at most."""


def forward(calls: Sequence[tuple[Inputs, Kept]], save: bool) -> list[list[Tensor]]:
    """Run every direction forward through its time; returns the final states of each."""
    prepared = [prepare(inputs, kept, None, save) for inputs, kept in calls]
    packing, products = [], []
    for call in prepared:
        weights = call.input_panels(turned=False)
        packing += [work for panels in (weights, *call.panels) for work in panels.work]
        sums, data = len(call.inputs.trace.ih), call.inputs.data
        products.append(dense.multiply(data, weights, sums, call.width["H"], call.kept.ih))
    at_once = _threads(prepared)
    _share(packing, at_once)
    _share(products, at_once)
    _loop(prepared, at_once)
    return [call.final() for call in prepared]


def backward(calls: Sequence[tuple[Inputs, Kept, Gradients]], wanted: Sequence[Wanted]) -> None:
    """Run every direction back through its time, then sum what reached the weights and the input."""
    prepared = [prepare(inputs, kept, gradients, True) for inputs, kept, gradients in calls]
    packing = [work for call in prepared for panels in call.panels for work in panels.work]
    products = []
    for call, what in zip(prepared, wanted, strict=True):
        before, after = gradient_products(call, what)
        packing += before
        products += after
    at_once = _threads(prepared)
    _share(packing, at_once)
    _loop(prepared, at_once)
    _share(products, at_once)


def prepare(inputs: Inputs, kept: Kept, gradients: Gradients | None, save: bool) -> Call:
    """The call of one direction's kernel."""
    bits = kept.ih.element_size() * 8
    kernel, function = kernel_of(inputs.cell, inputs.trace, bits, gradients is not None)
    return Call(kernel, function, inputs, kept, gradients, save)


def columns_apart(like: Tensor, rows: int, width: int) -> Tensor:
    """Memory (rows, width) whose rows lie as the kernel's layout has them for columns that are read downwards."""
    return like.new_empty(rows, apart(width, host().lanes(like.element_size() * 8)))[:, :width]


class Compiled(NamedTuple):
    """A printed kernel and its machine code."""

    kernel: Kernel
    function: Function


_compiled: dict[Any, Compiled] = {}


class _Crowd:
    """Remembers that threads had to wait for each other, as they do when other processes have their cores."""

    until = 0.0
    pause = CROWDED_FOR[0]

    def look_at(self, call: Call) -> None:
        """See how often the threads of a call waited long; each time it is worse, the next try comes later."""
        if call.barrier is None:
            return
        if int(call.barrier[1]) > call.time.steps // 4:
            self.until = time.monotonic() + self.pause
            self.pause = min(2 * self.pause, CROWDED_FOR[1])
        else:
            self.pause = CROWDED_FOR[0]


_crowd = _Crowd()


def kernel_of(cell: Cell, trace: Trace, bits: int, is_backward: bool) -> Compiled:
    """The kernel of a cell, compiled when it is first asked for."""
    processor = host()
    key = trace, bits, is_backward, cell.heads, processor
    if key not in _compiled:
        kernel = printed(cell, trace, is_backward)
        name = "backward" if is_backward else "forward"
        _compiled[key] = Compiled(kernel, compiled(kernel.text, name, bits, processor))
    return _compiled[key]


def printed(cell: Cell, trace: Trace, is_backward: bool) -> Kernel:
    """The kernel of a cell as text."""
    name = "backward" if is_backward else "forward"
    title = f"{type(cell).__name__}, {name} through time: one direction of a layer, the rows `first` to `last`."
    return print_kernel(Stages(trace, is_backward, cell.heads), title, cell.state)


def _threads(calls: list[Call]) -> int:
    """How many threads a pass is worth."""
    return torch.get_num_threads() if sum(call.work for call in calls) > FEW_OPERATIONS else 1


def _share(works: list[dense.Work], parts: int) -> None:
    """Every thread does its part of all."""
    if parts == 1:
        for work in works:
            work.part(0, 1)()
    elif works:
        threads.run([threads.in_turn([work.part(k, parts) for work in works]) for k in range(parts)])


def _loop(calls: list[Call], at_once: int) -> None:
    parts = max(1, at_once // len(calls))
    jobs = [job for call in calls for job in _jobs(call, parts)]
    for k in range(0, len(jobs), at_once):
        threads.run(jobs[k : k + at_once])
    for call in calls:
        _crowd.look_at(call)
        call.clear_padding()


def _jobs(call: Call, parts: int) -> list[threads.Job]:
    """The call's rows shared out so that each job has about as many steps, or the units of every row."""
    if parts > 1 and time.monotonic() > _crowd.until and _few_rows(call, parts):
        return _parts_of_rows(call, parts)
    return [call.job(first, last) for first, last in _shares(call, parts)]


def _shares(call: Call, parts: int) -> list[tuple[int, int]]:
    if parts == 1 or call.N < 2:
        return [(0, call.N)]
    if call.inputs.batch_sizes is None:
        bounds = [call.N * k // parts for k in range(parts + 1)]
    else:
        steps_before = call.time.sizes[1:-1, None].clamp(max=torch.arange(call.N + 1)).sum(0)
        goals = torch.arange(parts + 1) * call.time.rows // parts
        bounds = torch.searchsorted(steps_before, goals).tolist()
        bounds[-1] = call.N
    return [(first, last) for first, last in pairwise(bounds) if first < last]


def _few_rows(call: Call, parts: int) -> bool:
    """Whether threads had better share the units of each row, and meet at every step."""
    shareable = call.kernel.split_units and call.inputs.cell.heads == 1
    if not shareable or call.work < FEW_A_STEP * parts * max(call.time.steps, 1):
        return False
    weights = sum(panels.memory.numel() for panels in call.panels) * call.bytes
    return 2 * parts > call.N or (weights > OWN_CACHE and 2 * MOST_ROWS * parts >= call.N)


def _parts_of_rows(call: Call, parts: int) -> list[threads.Job]:
    call.barrier = torch.zeros(2, dtype=torch.int64)
    words = {"barrier": call.barrier.data_ptr(), "parties": parts}
    for name, axis in call.kernel.temporaries.items():
        words[f"{name}_ranks"] = call.keep(call.kept.ih.new_empty(call.N, call.width[axis])).data_ptr()
    return [call.job(0, call.N, **words, **_units(call, part, parts)) for part in range(parts)]


def _units(call: Call, part: int, parts: int) -> dict[str, int]:
    words = {}
    for name, axis in (("unit", "H"), ("out", "P")):
        width = call.width[axis]
        blocks = -(-width // call.lanes)
        words[f"{name}_0"] = blocks * part // parts * call.lanes
        words[f"{name}_1"] = min(blocks * (part + 1) // parts * call.lanes, width)
    return words
