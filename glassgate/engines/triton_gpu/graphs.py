"""Steps of kernel C in CUDA graphs. A graph reads steps, sizes and addresses from a table, so that it fits any call."""

from collections.abc import Callable, Sequence
from threading import Lock

import torch
from torch import Tensor

from glassgate.engines.triton_gpu.kernel import HEAD, in_graph
from glassgate.engines.triton_gpu.launch import Launch

STEPS = 64
"""Steps per graph. Steps after the last one of a call do nothing."""

LEAST = 32
"""Calls with fewer steps launch their kernels from Python."""

MOST = 256
"""Graphs that are kept."""

TYPES = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.uint8: "uint8",
}
"""Triton's names of types."""


def replay(launches: Sequence[Launch], T: int) -> None:
    """Runs all steps on the current stream.

    Args:
        launches: those of one step.
        T: the number of steps.
    """
    key = _key(launches)
    with _lock:
        graph = _graphs.get(key)
        if graph is None:
            if len(_graphs) >= MOST:
                _graphs.pop(next(iter(_graphs)))
            graph = _graphs[key] = Graph(launches)
    graph.run(launches, T)


class Graph:
    """A CUDA graph of some steps.

    Args:
        launches: those of one step. The graph keeps none of their tensors.
    """

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.starts, self.lock = [], Lock()
        for launch in launches:
            tensors = _tensors(launch)
            caller = in_graph(launch.kernels, [TYPES[v.dtype] for v in tensors], [*map(_is_aligned, tensors)])
            strides = [n for k in range(len(launch.kernels)) for n in launch.strides(k)]
            sizes = [launch.numbers.sizes[name] for name in ("H", "P", "heads")]
            self.starts.append((launch.starter([caller]), len(tensors), [*strides, *sizes]))
        length = HEAD + sum(count for _, count, _ in self.starts)
        self.table = torch.zeros(length, dtype=torch.int64, device=launches[0].device)
        self.steps()  # In a table of zeros, T is 0. This run does no step, but loads the kernels.
        self.replay = captured(self.steps, self.table.device)

    def steps(self) -> None:
        """Some steps from the first one in the table."""
        for step in range(STEPS):
            first = HEAD
            for start, count, numbers in self.starts:
                start([self.table, first, step, *numbers])
                first += count
        self.table[:1].add_(STEPS)

    def run(self, launches: Sequence[Launch], T: int) -> None:
        """All steps of a call."""
        numbers = launches[0].numbers
        starts = 0 if numbers.starts is None else numbers.starts.data_ptr()
        addresses = [v.data_ptr() for launch in launches for v in _tensors(launch)]
        table = torch.tensor([0, T, numbers.sizes["N"], starts, *addresses])
        with self.lock:
            self.table.copy_(table.pin_memory() if self.table.is_cuda else table, non_blocking=True)
            for _ in range(0, T, STEPS):
                self.replay()


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
    """The part of a step's launches that a graph contains. Calls on different streams run at the same time."""
    sizes, precision, starts, _ = launches[0].numbers
    device = launches[0].device
    stream = 0 if device.type == "cpu" else torch.cuda.current_stream(device).cuda_stream
    each = []
    for launch in launches:
        tensors = tuple((v.dtype, _is_aligned(v)) for v in _tensors(launch))
        strides = tuple(n for k in range(len(launch.kernels)) for n in launch.strides(k))
        each.append((launch.kernels, launch.grid, launch.blocks, tensors, strides))
    return device, stream, sizes["H"], sizes["P"], sizes["heads"], precision, starts is None, *each


_lock = Lock()
_graphs: dict[tuple[object, ...], Graph] = {}
