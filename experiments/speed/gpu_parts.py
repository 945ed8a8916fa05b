"""The parts of `python -m benchmarks gpu`, each a generator of cases.

The docstring of a part is printed above its table in docs/gpu-speed.md.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._higher_order_ops import scan as torch_scan
from torch.nn.functional import linear

import glassgate as gg
from experiments.speed.cells import cell as memory
from experiments.speed.peers.chunked import RECURRENCES, Chunked
from experiments.speed.peers.compiled_scan import lstm as scanned_lstm
from experiments.speed.workload import Workload
from glassgate.engines.triton_gpu import graphs
from glassgate.engines.triton_gpu.launch import PREAMBLE, compile_module
from glassgate.engines.triton_gpu.mathematics import FUNCTIONS

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
Figures = dict[str, Any]


class Case(NamedTuple):
    """A row of the table of a part.

    Attributes:
        name: the name of the row.
        measure: a function that returns the values of the row by column.
    """

    name: str
    measure: Callable[[], Figures]


class Swish(gg.Cell):
    """A custom cell with three gates, like a GRU."""

    gates = ("f", "g", "o")

    def step(self, a: Any, s: Any) -> Any:
        f = torch.sigmoid(a.f)
        return torch.sigmoid(a.o) * (f * s.h + (1 - f) * nn.functional.silu(a.g))


class Bench:
    """Measures calls on one device.

    Args:
        quick: whether layers are tiny, and calls run once.
    """

    def __init__(self, quick: bool) -> None:
        self.quick, self.device = quick, "cuda" if torch.cuda.is_available() else "cpu"

    def sizes(self, *sizes: int) -> tuple[int, ...]:
        """These sizes, or at most 3 each if `quick`."""
        return tuple(min(n, 3) for n in sizes) if self.quick else sizes

    def random(self, *shape: int) -> Tensor:
        """A random input that requires gradients."""
        return torch.randn(shape, device=self.device, requires_grad=True)

    def milliseconds(self, run: Callable[[], object], rounds: int = 20) -> float:
        """Measure the median time of a call on the GPU, after three warm-up calls."""
        if self.device == "cpu":
            start = time.perf_counter()
            run()
            return 1e3 * (time.perf_counter() - start)
        for _ in range(3):
            run()
        times = []
        for _ in range(1 if self.quick else rounds):
            start_event, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start_event.record()
            run()
            end.record()
            end.synchronize()
            times.append(start_event.elapsed_time(end))
        return sorted(times)[len(times) // 2]

    def times(
        self, layer: Callable[..., Any], x: Any, dtype: torch.dtype, training: bool = True, **options: Any
    ) -> list[float]:
        """Measure milliseconds of a forward pass without gradients, and of a forward and backward pass."""

        def forward() -> None:
            with torch.no_grad(), self.autocast(dtype):
                layer(x, **options)

        def forward_and_backward() -> None:
            with self.autocast(dtype):
                output = layer(x, **options)[0]
            data = output.data if isinstance(output, nn.utils.rnn.PackedSequence) else output
            data.backward(torch.ones_like(data))

        return [self.milliseconds(run) for run in (forward, *([forward_and_backward] if training else []))]

    def compare(
        self, layer: gg.Recurrent, other: Callable[..., Any] | None, x: Any, dtype: torch.dtype, **options: Any
    ) -> Figures:
        """Measure our layer and another layer of the same size. Returns the kernel and the times."""
        with gg.engine("triton"):
            with self.autocast(dtype):
                kernel = gg.explain(layer, x, **options).detail
            figures = {"kernel": kernel, "ours": self.times(layer, x, dtype, **options)}
        # On CPUs, oneDNN lacks an LSTM in float16.
        if other is None or (self.device == "cpu" and dtype == torch.float16):
            return figures
        return figures | {"other": self.times(other, x, dtype)}

    def autocast(self, dtype: torch.dtype) -> AbstractContextManager[object]:
        """Autocast to a half precision. Without effect for float32."""
        return torch.autocast(self.device, dtype) if dtype in HALF.values() else nullcontext()


def set_precision(precision: str) -> None:
    """Set the precision of all float32 matrix products: "ieee" or "tf32"."""
    torch.backends.cudnn.rnn.fp32_precision = precision  # type: ignore[attr-defined]
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


EMPTY = """
@triton.jit
def empty(x):
    tl.store(x, 0)
"""
BARRIERS = """
@triton.jit
def barriers(arrived, count):
    expected = 0
    patience = 50000000
    for _ in range(count):
        expected += tl.num_programs(0)
        patience = barrier(arrived, expected, patience)
"""


def multiprocessors() -> int:
    """The number of multiprocessors of the GPU. Kernel B runs at most this many programs."""
    return torch.cuda.get_device_properties("cuda").multi_processor_count


def costs(bench: Bench) -> Iterator[Case]:
    """The time of a launch in a CUDA graph of 64 launches, and of a barrier in a kernel of 1000 barriers."""

    def launch() -> Figures:
        x = torch.zeros(1, dtype=torch.int32, device=bench.device)
        kernel, count = compile_module(PREAMBLE + EMPTY, bench.device == "cpu")["empty"], 3 if bench.quick else 64

        def run() -> None:
            for _ in range(count):
                kernel[(1,)](x)

        run()
        return {"microseconds": 1e3 * bench.milliseconds(graphs.capture(run, x.device)) / count}

    def barrier(programs: int) -> Figures:
        text = PREAMBLE + FUNCTIONS["barrier"] + BARRIERS
        kernel, count = compile_module(text, bench.device == "cpu")["barriers"], 3 if bench.quick else 1000

        def run() -> None:
            arrived = torch.zeros(1, dtype=torch.int32, device=bench.device)
            kernel[(programs,)](arrived, count, launch_cooperative_grid=True)

        return {"microseconds": 1e3 * bench.milliseconds(run) / count}

    yield Case("launch in a CUDA graph", launch)
    for programs in (1,) if bench.quick else (32, 64, multiprocessors()):
        yield Case(f"barrier of {programs} programs", partial(barrier, programs))


def errors_of(
    bench: Bench, cell: gg.Cell, sizes: tuple[int, ...], dtype: torch.dtype, precision: str = "ieee"
) -> Figures:
    """The errors of a cell in calls of L steps, with D features and H units."""
    torch.manual_seed(0)
    L, D, H = sizes
    layer_of = partial(gg.Recurrent, cell, D, H, bidirectional=True, device=bench.device)
    ours, exact = layer_of(dtype=dtype), layer_of(dtype=torch.float64)
    exact.load_state_dict(ours.state_dict())
    x, lengths = torch.randn(L, 5, D, device=bench.device, dtype=dtype), torch.tensor([L, 0, 1, L - 1, L])
    resets, values = torch.rand(L, 5, device=bench.device) < 0.1, []
    for engine, layer in (("triton", ours), ("reference", ours), ("reference", exact)):
        set_precision(precision if engine == "triton" else "ieee")
        with gg.engine(engine):
            parameters = [v for v in layer.parameters() if v.numel()]
            output = layer(x.to(layer.weight_ih_l0.dtype), lengths=lengths, resets=resets)[0]
            values.append(
                [output.detach(), *torch.autograd.grad(output.square().sum(), parameters, materialize_grads=True)]
            )
    *approximate, truth = values
    errors_of_triton, errors_of_eager = (
        [float((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in zip(v, truth, strict=True)]
        for v in approximate
    )
    return {
        "output": errors_of_triton[0], "eager output": errors_of_eager[0],
        "worst gradient": max(errors_of_triton[1:]), "eager worst gradient": max(errors_of_eager[1:]),
    }  # fmt: skip


def errors(bench: Bench) -> Iterator[Case]:
    """Errors of every cell, relative to the largest value of the float64 reference, for output and gradients.

    *eager* is the error of the reference engine with the same dtype, always without TF32.
    """

    kinds = [("float32", torch.float32, "ieee"), ("TF32", torch.float32, "tf32")]
    kinds += [(name, dtype, "ieee") for name, dtype in HALF.items()]
    for name in gg.cells.__all__[:2] if bench.quick else gg.cells.__all__:
        for kind, dtype, precision in kinds[::3] if bench.quick else kinds:
            arguments = getattr(gg.cells, name)(), bench.sizes(33, 24, 64), dtype, precision
            yield Case(f"{name}, {kind}", partial(errors_of, bench, *arguments))


def plain(bench: Bench) -> Iterator[Case]:
    """LSTM and GRU compared with cuDNN, in half precision and TF32. The first three sizes are FlashRNN's."""
    all_sizes = ((1024, 16, 768), (128, 64, 256), (512, 32, 1024), (512, 16, 512), (100, 32, 64), (100, 32, 128))
    for L, N, H in all_sizes[:1] if bench.quick else all_sizes:
        for name in ("LSTM", "GRU"):
            for dtype in (torch.float16,) if bench.quick else (*HALF.values(), torch.float32):
                kind = "TF32" if dtype == torch.float32 else str(dtype).removeprefix("torch.")
                yield Case(f"{name}, L {L}, N {N}, H {H}, {kind}", partial(_plain, bench, name, (L, N, H), dtype))


def _plain(bench: Bench, name: str, sizes: tuple[int, ...], dtype: torch.dtype) -> Figures:
    set_precision("tf32")
    L, N, H = bench.sizes(*sizes)
    layer, other = (getattr(module, name)(H, H, device=bench.device) for module in (gg, nn))
    return bench.compare(layer, other, bench.random(L, N, H), dtype)


def scanned_swish(x: Tensor, h_0: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Any:
    """Compute `Swish` by torch's `scan`. Returns the final state and the output."""

    def step(h: Tensor, ih: Tensor) -> tuple[Tensor, Tensor]:
        f, g, o = (ih + linear(h, w_hh)).chunk(3, -1)
        f = f.sigmoid()
        h = o.sigmoid() * (f * h + (1 - f) * nn.functional.silu(g))
        return h.clone(), h.clone()

    return torch_scan(step, h_0, linear(x, w_ih, b_ih + b_hh))


def scan(bench: Bench) -> Iterator[Case]:
    """An LSTM and a custom cell compared with torch's `scan` under torch.compile (L 128, N 16, H 512, TF32)."""

    def measure(cell: gg.Cell, scanned: Callable[..., Any]) -> Figures:
        L, N, H = bench.sizes(128, 16, 512)
        layer, x = gg.Recurrent(cell, H, H, device=bench.device), bench.random(L, N, H)
        states = torch.zeros(len(cell.state), N, H, device=bench.device).unbind()
        run = scanned if bench.quick else torch.compile(scanned, fullgraph=True)

        def other(x: Tensor) -> tuple[Any, Any]:
            final, output = run(x, *states, *(v.clone() for v in layer.parameters()))
            return output, final

        set_precision("tf32")
        return bench.compare(layer, other, x, torch.float32)

    yield Case("LSTM", partial(measure, gg.cells.LSTM(), scanned_lstm))
    yield Case("custom cell", partial(measure, Swish(), scanned_swish))


def options(bench: Bench) -> Iterator[Case]:
    """Resets, packed input, directions, projection, normalisation, a custom cell: L 512, N 16, H 512, bfloat16."""
    L, N, H = bench.sizes(512, 16, 512)
    dtype, device = torch.float16 if bench.quick else torch.bfloat16, bench.device

    def resets() -> Figures:
        mask = torch.rand(L, N, device=device) < 0.01
        return bench.compare(gg.GRU(H, H, device=device), None, bench.random(L, N, H), dtype, resets=mask)

    def variant(**more: Any) -> Figures:
        layer, other = (module.LSTM(H, H, device=device, **more) for module in (gg, nn))
        return bench.compare(layer, other, bench.random(L, N, H), dtype)

    def packed() -> Figures:
        layer, other = (module.LSTM(H, H, device=device) for module in (gg, nn))
        lengths = torch.linspace(L, 1, N).long()
        x = nn.utils.rnn.pack_padded_sequence(torch.randn(L, N, H, device=device), lengths)
        return bench.compare(layer, other, x, dtype)

    def cell(kind: gg.Cell) -> Figures:
        return bench.compare(gg.Recurrent(kind, H, H, device=device), None, bench.random(L, N, H), dtype)

    yield Case("GRU with resets (TorchRL's size)", resets)
    yield Case("LSTM, two directions", partial(variant, bidirectional=True))
    yield Case("LSTM, projection", partial(variant, proj_size=max(H // 2, 1)))
    yield Case("LSTM, packed", packed)
    yield Case("layer-normalised LSTM", partial(cell, gg.cells.LayerNormLSTM()))
    yield Case("custom cell", partial(cell, Swish()))


def matrices(bench: Bench) -> Iterator[Case]:
    """Matrix memories with heads of 64 x 64 in float32. *other* is the chunked form in PyTorch, if there is one.

    A case is timed only if its errors, as in the table of errors, are below 1e-3.
    """

    def measure(name: str, L: int, N: int, H: int) -> Figures:
        set_precision("ieee")
        figures = errors_of(bench, memory(name, H), (min(L, 33), H, H), torch.float32)
        if not max(figures["output"], figures["worst gradient"]) < 1e-3:
            raise RuntimeError(f"the errors of {name} are too large to time it: {figures}")
        layer = gg.Recurrent(memory(name, H), H, H, device=bench.device)
        other = None
        if name in RECURRENCES:
            chunked = Chunked(Workload(L, N, H, cell=name)).to(bench.device)
            initial = [torch.zeros(1, N, *shape, device=bench.device) for shape in ((H,), (H // 64, 64, 64))]
            other = partial(chunked, hx=initial)
        return figures | bench.compare(layer, other, bench.random(L, N, H), torch.float32)

    for L, N, H in ((3, 1, 64),) if bench.quick else ((1024, 1, 256), (1024, 16, 256), (4096, 4, 1024)):
        for name in ("DeltaNet",) if bench.quick else gg.cells.MATRIX_MEMORIES:
            yield Case(f"{name}, L {L}, N {N}, H {H}", partial(measure, name, L, N, H))


def captured(bench: Bench) -> Iterator[Case]:
    """Microseconds of one step of one sequence: a call of the layer in a CUDA graph, and a step of a stream."""

    def step(H: int) -> Figures:
        layer, x = gg.LSTM(H, H, device=bench.device), torch.randn(1, 1, H, device=bench.device)
        with gg.engine("triton"), torch.no_grad():
            layer(x)
            run: Callable[[], object] = partial(layer, x)
            if bench.device != "cpu":
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    layer(x)
                run = graph.replay
            stream = layer.stream(1)
            return {
                "layer": 1e3 * bench.milliseconds(run),
                "stream": 1e3 * bench.milliseconds(lambda: stream.step(x[0])),
            }

    for H in bench.sizes(128) if bench.quick else (128, 512):
        yield Case(f"LSTM, H {H}", partial(step, H))


PARTS = {part.__name__: part for part in (costs, errors, plain, options, matrices, captured, scan)}
"""The parts in order of importance. `scan` is last, because its compilation may take many minutes."""
