"""Measures the speed of variants of an LSTM layer, from eight matrix products per step to generated kernels."""

import io
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.ticker import NullFormatter
from torch import Tensor, nn

import glassgate as gg
from glassgate.claims import lstm_variants
from glassgate.claims.page import figure, machine, page, save, table
from glassgate.claims.pictures import Picture, drawing

LENGTH = 100
"""The number of steps."""
SIZES = ((1, 64), (32, 64), (32, 128), (32, 256))
"""Pairs of batch size and hidden size; the input size equals the hidden size."""
ROUNDS = 7
"""The number of times that each variant is measured."""

VARIANTS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "eight products": lstm_variants.gate_by_gate,
    "two products": lstm_variants.fused_gates,
    "one product": lstm_variants.input_first,
    "printed kernel": lstm_variants.printed_kernel,
    "torch.nn.LSTM": lambda x, w: w(x)[0],
}
ONNX = "ONNX Runtime"


class Size(NamedTuple):
    """Batch and hidden size of a measurement."""

    N: int
    H: int


def measure(
    sizes: Sequence[tuple[int, int]] = SIZES, rounds: int = ROUNDS, report: Callable[[str], None] = print
) -> Any:
    """Measure the time and the error of each variant at each size.

    The variants run in turn on one thread. With several threads, results would depend on the settings of the libraries'
    thread pools.

    Returns:
        a row for each variant and size: "variant"; "N" and "H"; "forward" and "training" in microseconds per step
        ("training" is None for inference engines); "error", the largest difference from float64, relative to the
        largest value; and "fraction_of_peak", the throughput of the forward pass relative to a large matrix product.
    """
    peak, rows = 0.0, []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for size in map(Size._make, sizes):
            peak = max(peak, _peak_throughput())
            report(f"N={size.N}, H={size.H} ...")
            rows += _measure_variants(size, rounds, peak)
            if find_spec("onnxruntime") and find_spec("onnx"):
                # ONNX Runtime needs a separate process: its threads wait actively and would slow down other variants.
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    rows.append(pool.submit(_measure_onnx, size, rounds, peak).result())
    finally:
        torch.set_num_threads(threads)
    return rows


def _peak_throughput() -> float:
    """Measure the multiplications per second of a large matrix product in torch."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 1024**3 / min(_seconds(lambda: a @ b) for _ in range(20))


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _input_and_layer(size: Size) -> tuple[Tensor, nn.LSTM, Tensor]:
    """Create an input and a layer. Returns both, and the output of the layer in float64."""
    torch.manual_seed(0)
    x = torch.randn(LENGTH, size.N, size.H)
    layer = nn.LSTM(size.H, size.H)
    exact = nn.LSTM(size.H, size.H, dtype=torch.float64)
    exact.load_state_dict(layer.state_dict())
    with torch.no_grad():
        return x, layer, exact(x.double())[0]


def _multiplications(size: Size) -> int:
    """The number of multiplications in the matrix products of a forward pass."""
    return LENGTH * size.N * 8 * size.H * size.H


def _row(variant: str, size: Size, forward: float, training: float | None, error: float, peak: float) -> dict[str, Any]:
    fraction_of_peak = _multiplications(size) / forward / peak
    per_step = 1e6 / LENGTH
    return {
        "variant": variant,
        **size._asdict(),
        "forward": forward * per_step,
        "training": training and training * per_step,
        "error": error,
        "fraction_of_peak": fraction_of_peak,
    }


def _error(output: Tensor, exact: Tensor) -> float:
    return ((output.double() - exact).abs().max() / exact.abs().max()).item()


def _measure_variants(size: Size, rounds: int, peak: float) -> list[dict[str, Any]]:
    x, torch_layer, exact = _input_and_layer(size)
    layer = gg.LSTM(size.H, size.H)
    layer.load_state_dict(torch_layer.state_dict())
    layers = {name: torch_layer if name == "torch.nn.LSTM" else layer for name in VARIANTS}

    def forward(name: str) -> Tensor:
        with torch.no_grad():
            return VARIANTS[name](x, layers[name])

    def train(name: str) -> None:
        VARIANTS[name](x, layers[name]).sum().backward()
        layers[name].zero_grad()

    errors = {name: _error(forward(name), exact) for name in VARIANTS}
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in VARIANTS}
    for name in VARIANTS:
        train(name)
    for _ in range(rounds):
        for name, (forwards, trainings) in times.items():
            forwards.append(_seconds(lambda name=name: forward(name)))  # type: ignore[misc]
            trainings.append(_seconds(lambda name=name: train(name)))  # type: ignore[misc]
    return [
        _row(name, size, statistics.median(forwards), statistics.median(trainings), errors[name], peak)
        for name, (forwards, trainings) in times.items()
    ]


def _measure_onnx(size: Size, rounds: int, peak: float) -> dict[str, Any]:
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    x, layer, exact = _input_and_layer(size)

    def in_onnx_order(name: str) -> Tensor:
        i, f, g, o = layer.get_parameter(name).detach().chunk(4)
        return torch.cat([i, o, f, g])

    weights = {
        "W": in_onnx_order("weight_ih_l0")[None],
        "R": in_onnx_order("weight_hh_l0")[None],
        "B": torch.cat([in_onnx_order("bias_ih_l0"), in_onnx_order("bias_hh_l0")])[None],
    }
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", *weights], ["y"], hidden_size=size.H)],
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (LENGTH, 1, size.N, size.H))],
        [numpy_helper.from_array(value.numpy(), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    file = io.BytesIO(model.SerializeToString())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    inputs = {"x": x.numpy()}
    output = torch.from_numpy(session.run(None, inputs)[0])[:, 0]
    seconds = statistics.median(_seconds(lambda: session.run(None, inputs)) for _ in range(rounds))
    return _row(ONNX, size, seconds, None, _error(output, exact), peak)


def draw_variants(rows: Sequence[dict[str, Any]]) -> Picture:
    """Draw the time per step of each variant, with one panel per size."""
    sizes = list(dict.fromkeys((row["N"], row["H"]) for row in rows))
    names = list(dict.fromkeys(row["variant"] for row in rows))
    with drawing(8.2, 3.2, 1, len(sizes), sharey=True) as (chart, (grid,)):
        for axes, (N, H) in zip(grid, sizes, strict=True):
            by_variant = {row["variant"]: row for row in rows if (row["N"], row["H"]) == (N, H)}
            for key, colour, offset in (("forward", "#2f86cc", -0.17), ("training", "#d9620f", 0.17)):
                indices = [k for k, name in enumerate(names) if name in by_variant and by_variant[name][key]]
                values = [by_variant[names[k]][key] for k in indices]
                axes.barh([k + offset for k in indices], values, 0.32, color=colour, label=key)
            times = [time for row in by_variant.values() for time in (row["forward"], row["training"]) if time]
            axes.set(title=f"N = {N}, H = {H}", xscale="log", xlabel="microseconds per step")
            axes.set_xlim(0.5 * min(times), 1.5 * max(times))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_yticks(range(len(names)), names)
        grid[0].invert_yaxis()
        grid[0].legend(fontsize=7, loc="lower right")
        values = [f"{row['variant']} at N={row['N']}, H={row['H']}: {row['forward']:.1f}" for row in rows]
        return Picture("variants", chart, f"Microseconds per step, forward: {'; '.join(values)}.")


def write(rows: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Write `products.html`, `products.json` and the picture. Returns the files."""
    picture = draw_variants(rows)
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "variant": lambda row: row["variant"],
        "N": lambda row: str(row["N"]),
        "H": lambda row: str(row["H"]),
        "forward, us per step": lambda row: f"{row['forward']:.1f}",
        "training, us per step": lambda row: f"{row['training']:.1f}" if row["training"] else "-",
        "error against float64": lambda row: f"{row['error']:.1e}",
        "fraction of peak": lambda row: f"{row['fraction_of_peak']:.0%}",
    }
    cells = [[text(row) for text in columns.values()] for row in rows]
    caption = "Medians of interleaved runs. The peak is that of torch for a matrix product of 1,024 x 1,024."
    scale = "Logarithmic scale. All variants compute the same function with the same weights."
    sections = [
        ("Time per step", figure(picture, scale)),
        ("All figures", table(caption, list(columns), cells)),
    ]
    lead = f"One LSTM layer over {LENGTH} steps in float32 on one thread, from its equations to machine code."
    html = page("From eight matrix products to one", lead, _findings(rows), sections)
    return save(folder, "products", html, {"machine": machine(), "rows": list(rows)}, [picture])


def _findings(rows: Sequence[dict[str, Any]]) -> list[str]:
    sentences = []
    for N, H in dict.fromkeys((row["N"], row["H"]) for row in rows):
        by_variant = {row["variant"]: row for row in rows if (row["N"], row["H"]) == (N, H)}
        eight, two, _, kernel, torch_lstm = (by_variant[name]["training"] for name in VARIANTS)
        sentences.append(
            f"N = {N}, H = {H}: training speed relative to eight products: two products {eight / two:.1f}x, printed "
            f"kernel {eight / kernel:.1f}x, torch.nn.LSTM {eight / torch_lstm:.1f}x."
        )
    return sentences
