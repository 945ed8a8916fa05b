"""Runs the steps of kernel C, the kernel with separate launches for each step, as CUDA graphs.

The kernels in a graph read the step, the sizes and the addresses of tensors from a table, so that calls with different
lengths and tensors share a graph.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor

from glassgate.engines.triton_gpu.kernel import TABLE_HEADER, kernel_in_graph
from glassgate.engines.triton_gpu.launch import Launch

STEPS_PER_GRAPH = 64
"""The number of steps in a graph. Steps after the last step of a call do nothing."""

MIN_STEPS = 32
"""The smallest number of steps for which graphs are used. With fewer steps, Python launches each kernel."""

MAX_GRAPHS = 256
"""The largest number of graphs that are cached."""

Entry = TypeVar("Entry")

TYPES = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.uint8: "uint8",
}
"""Triton's names of dtypes."""


def run_steps(launches: Sequence[Launch], T: int) -> None:
    """Run all steps on the current stream. If the stream is being captured, the captured graph contains the launches.

    Args:
        launches: the launches of one step.
        T: the number of steps.
    """
    key, device, others = _key(launches), launches[0].device, launches[0].other_arguments
    with _lock:
        steps = _get_or_make(_steps, key, lambda: StepLaunches(launches))
    starts = 0 if others.starts is None else others.starts.data_ptr()
    values = [0, T, others.sizes["N"], starts, *(v.data_ptr() for launch in launches for v in _all_tensors(launch))]
    if is_captured(device):
        table = torch.empty(len(values), dtype=torch.int64, device=device)
        for place, value in zip(table, values, strict=True):
            place.fill_(value)
        for _ in range(0, T, STEPS_PER_GRAPH):
            steps.run(table)
        return
    stream = 0 if device.type == "cpu" else torch.cuda.current_stream(device).cuda_stream
    with _lock:
        graph = _get_or_make(_graphs, (key, stream), lambda: Graph(steps, len(values), device))
    graph.run(torch.tensor(values), T)


class StepLaunches:
    """Launches that read their arguments from a table.

    Args:
        launches: the launches of one step. Their tensors are not kept alive.
    """

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.functions = []
        for launch in launches:
            tensors = _all_tensors(launch)
            caller = kernel_in_graph(launch.kernels, [TYPES[v.dtype] for v in tensors], [*map(_is_aligned, tensors)])
            strides = [n for k in range(len(launch.kernels)) for n in launch.strides(k)]
            sizes = map(launch.other_arguments.of, launch.kernels[0].static_parameters)
            self.functions.append((launch.make_start(caller), len(tensors), [*strides, *sizes]))

    def run(self, table: Tensor) -> None:
        """Launch `STEPS_PER_GRAPH` steps, then add this number to entry 0 of the table, the index of the first step."""
        for step in range(STEPS_PER_GRAPH):
            first = TABLE_HEADER
            for start, count, numbers in self.functions:
                start([table, first, step, *numbers])
                first += count
        table[:1].add_(STEPS_PER_GRAPH)


class Graph:
    """A CUDA graph of `STEPS_PER_GRAPH` steps, for calls on one stream.

    Args:
        steps: the launches.
        length: the number of entries of the table that the launches read.
        device: the GPU.
    """

    def __init__(self, steps: StepLaunches, length: int, device: torch.device) -> None:
        self.lock = Lock()
        with torch.inference_mode(False):  # later calls, in any mode, write to the table
            self.table = torch.zeros(length, dtype=torch.int64, device=device)
        steps.run(self.table)  # T is 0 in this table. The run loads the kernels and computes no step.
        self.replay = capture(partial(steps.run, self.table), device)

    def run(self, table: Tensor, T: int) -> None:
        """Run all steps of a call with this table."""
        with self.lock:
            self.table.copy_(table.pin_memory() if self.table.is_cuda else table, non_blocking=True)
            for _ in range(0, T, STEPS_PER_GRAPH):
                self.replay()


def is_captured(device: torch.device) -> bool:
    """Whether the current stream is being captured in a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def capture(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Capture the launches of a function in a CUDA graph, and return a function that replays them.

    On the CPU, where Triton's interpreter runs the kernels, return `run` itself.
    """
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


def _all_tensors(launch: Launch) -> list[Tensor]:
    return [v for own in launch.tensors for v in own]


def _is_aligned(v: Tensor) -> bool:
    return v.data_ptr() % 16 == 0


def _key(launches: Sequence[Launch]) -> tuple[object, ...]:
    """Return all properties of the launches that the table does not contain. Launches with equal keys share a graph."""
    sizes, precision, starts, _ = launches[0].other_arguments
    launch_keys = []
    for launch in launches:
        tensors = tuple((v.dtype, _is_aligned(v)) for v in _all_tensors(launch))
        strides = tuple(n for k in range(len(launch.kernels)) for n in launch.strides(k))
        launch_keys.append((launch.kernels, launch.grid, launch.blocks, tensors, strides))
    return launches[0].device, sizes["H"], sizes["P"], sizes["heads"], precision, starts is None, *launch_keys


def _get_or_make(entries: dict[tuple[object, ...], Entry], key: tuple[object, ...], make: Callable[[], Entry]) -> Entry:
    """Return the entry of a key. Make a missing entry, and drop the oldest of `MAX_GRAPHS` entries."""
    if key not in entries:
        if len(entries) >= MAX_GRAPHS:
            entries.pop(next(iter(entries)))
        entries[key] = make()
    return entries[key]


_lock = Lock()
_steps: dict[tuple[object, ...], StepLaunches] = {}
_graphs: dict[tuple[object, ...], Graph] = {}
