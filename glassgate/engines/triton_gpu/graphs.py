"""Runs the steps of kernel C as CUDA graphs, for any call: a graph reads step, sizes and addresses from a table."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor

from glassgate.engines.triton_gpu.kernel import HEAD, in_graph
from glassgate.engines.triton_gpu.launch import Launch

STEPS = 64
"""The number of steps in a graph. Steps after the last one of a call do nothing."""

LEAST = 32
"""Calls with fewer steps launch their kernels from Python."""

MOST = 256
"""The largest number of graphs that are kept."""

Kept = TypeVar("Kept")

TYPES = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.uint8: "uint8",
}
"""Triton's names of types."""


def run(launches: Sequence[Launch], T: int) -> None:
    """Runs all steps on the current stream. If the caller captures the stream, its graph gets the launches.

    Args:
        launches: the launches of one step.
        T: the number of steps.
    """
    key, device, numbers = _key(launches), launches[0].device, launches[0].numbers
    with _lock:
        steps = _kept(_steps, key, lambda: Steps(launches))
    starts = 0 if numbers.starts is None else numbers.starts.data_ptr()
    values = [0, T, numbers.sizes["N"], starts, *(v.data_ptr() for launch in launches for v in _tensors(launch))]
    if is_captured(device):
        table = torch.empty(len(values), dtype=torch.int64, device=device)
        for place, value in zip(table, values, strict=True):
            place.fill_(value)
        for _ in range(0, T, STEPS):
            steps.run(table)
        return
    stream = 0 if device.type == "cpu" else torch.cuda.current_stream(device).cuda_stream
    with _lock:
        graph = _kept(_graphs, (key, stream), lambda: Graph(steps, len(values), device))
    graph.run(torch.tensor(values), T)


class Steps:
    """Launches that read their arguments from a table.

    Args:
        launches: the launches of one step. None of their tensors is kept.
    """

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.starts = []
        for launch in launches:
            tensors = _tensors(launch)
            caller = in_graph(launch.kernels, [TYPES[v.dtype] for v in tensors], [*map(_is_aligned, tensors)])
            strides = [n for k in range(len(launch.kernels)) for n in launch.strides(k)]
            sizes = map(launch.numbers.of, launch.kernels[0].fixed)
            self.starts.append((launch.starter(caller), len(tensors), [*strides, *sizes]))

    def run(self, table: Tensor) -> None:
        """Launches `STEPS` steps from the first one in the table, and advances that."""
        for step in range(STEPS):
            first = HEAD
            for start, count, numbers in self.starts:
                start([table, first, step, *numbers])
                first += count
        table[:1].add_(STEPS)


class Graph:
    """A CUDA graph of some steps, for calls on one stream.

    Args:
        steps: the launches.
        length: the length of their table.
        device: the GPU.
    """

    def __init__(self, steps: Steps, length: int, device: torch.device) -> None:
        self.lock = Lock()
        with torch.inference_mode(False):  # later calls, in any mode, write to the table
            self.table = torch.zeros(length, dtype=torch.int64, device=device)
        steps.run(self.table)  # In a table of zeros, T is 0. This run does no step, but loads the kernels.
        self.replay = captured(partial(steps.run, self.table), device)

    def run(self, table: Tensor, T: int) -> None:
        """Runs all steps of a call with this table."""
        with self.lock:
            self.table.copy_(table.pin_memory() if self.table.is_cuda else table, non_blocking=True)
            for _ in range(0, T, STEPS):
                self.replay()


def is_captured(device: torch.device) -> bool:
    """Whether the caller captures the current stream in a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def captured(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """A function that repeats the launches of another one. In Triton's interpreter it is that function."""
    if device.type == "cpu":
        return run
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            run()
        finally:
            graph.capture_end()
    replay: Callable[[], None] = graph.replay
    return replay


def _tensors(launch: Launch) -> list[Tensor]:
    return [v for own in launch.tensors for v in own]


def _is_aligned(v: Tensor) -> bool:
    return v.data_ptr() % 16 == 0


def _key(launches: Sequence[Launch]) -> tuple[object, ...]:
    """The properties of a step's launches that are not in the table."""
    sizes, precision, starts, _ = launches[0].numbers
    each = []
    for launch in launches:
        tensors = tuple((v.dtype, _is_aligned(v)) for v in _tensors(launch))
        strides = tuple(n for k in range(len(launch.kernels)) for n in launch.strides(k))
        each.append((launch.kernels, launch.grid, launch.blocks, tensors, strides))
    return launches[0].device, sizes["H"], sizes["P"], sizes["heads"], precision, starts is None, *each


def _kept(entries: dict[tuple[object, ...], Kept], key: tuple[object, ...], make: Callable[[], Kept]) -> Kept:
    """The entry of a key, made if it is missing. If there are too many, the oldest one is dropped."""
    if key not in entries:
        if len(entries) >= MOST:
            entries.pop(next(iter(entries)))
        entries[key] = make()
    return entries[key]


_lock = Lock()
_steps: dict[tuple[object, ...], Steps] = {}
_graphs: dict[tuple[object, ...], Graph] = {}
