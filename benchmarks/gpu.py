"""`python -m benchmarks gpu`: the GPU engine on this machine's GPU, part by part; JSON, and the page docs/gpu-speed.md.

Parts run in order of importance. Each takes at most ten minutes and is stored when it ends; the next run skips it.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import glassgate as gg
from benchmarks.turns import ROOT

LIMIT = 600.0
"""Seconds of a part."""

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
Figures = dict[str, Any]
Part = Callable[[], Iterator[Figures]]


class Swish(gg.Cell):
    """A user-defined cell of the size of a GRU."""

    gates = ("f", "g", "o")

    def step(self, a, s):
        f = torch.sigmoid(a.f)
        return torch.sigmoid(a.o) * (f * s.h + (1 - f) * nn.functional.silu(a.g))


def milliseconds(run: Callable[[], Any], rounds: int = 20) -> float:
    """The median time of a call on the GPU, after three calls."""
    for _ in range(3):
        run()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[rounds // 2]


def forward_and_training(layer: nn.Module, x: Tensor, dtype: torch.dtype, **options: Any) -> tuple[float, float]:
    """Milliseconds of a forward pass without gradients, and of a forward and a backward pass."""
    cast = torch.autocast("cuda", dtype) if dtype in HALF.values() else nullcontext()

    def forward() -> None:
        with torch.no_grad(), cast:
            layer(x, **options)

    def training() -> None:
        with cast:
            output = layer(x, **options)[0]
        data = output.data if isinstance(output, nn.utils.rnn.PackedSequence) else output
        data.backward(torch.ones_like(data))

    return milliseconds(forward), milliseconds(training)


def figure(
    name: str, layer: gg.Recurrent, other: nn.Module | None, x: Tensor, dtype: torch.dtype, **options: Any
) -> Figures:
    """Our times, and those of another layer with the same weights if it has them."""
    found: Figures = {"case": name, "dtype": str(dtype).removeprefix("torch.")}
    with gg.engine("triton"):
        found["kernel"] = gg.explain(layer, x, **options).more
        found["ours"] = forward_and_training(layer, x, dtype, **options)
    if other is not None:
        found["cuDNN"] = forward_and_training(other, x, dtype)
    return found


def random(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda", requires_grad=True)


def launches() -> Iterator[Figures]:
    """The cost of a launch per phase and of a barrier per phase: a tiny layer, whose other work is small."""
    for steps in (100, 1000):
        layer, x = gg.LSTM(16, 512, device="cuda"), random(steps, 1, 16)
        found = figure(f"LSTM, L {steps}, N 1, H 512", layer, None, x, torch.bfloat16)
        yield found | {"microseconds per step": 1e3 * found["ours"][0] / steps}


def errors() -> Iterator[Figures]:
    """Errors of every cell, relative to the largest value of the float64 reference, for output and gradients."""
    for name in gg.cells.__all__:
        for dtype in (torch.float32, *HALF.values()):
            torch.manual_seed(0)
            layer = gg.Recurrent(getattr(gg.cells, name)(), 24, 64, bidirectional=True, device="cuda", dtype=dtype)
            x = torch.randn(33, 5, 24, device="cuda", dtype=dtype)
            lengths, resets = torch.tensor([33, 0, 7, 20, 33]), torch.rand(33, 5, device="cuda") < 0.1
            values = {}
            for engine in ("triton", "reference"):
                exact = engine == "reference"
                own = (
                    gg.Recurrent(layer.cell, 24, 64, bidirectional=True, device="cuda", dtype=torch.float64)
                    if exact
                    else layer
                )
                own.load_state_dict(layer.state_dict())
                with gg.engine(engine):
                    output = own(x.to(next(own.parameters()).dtype), lengths=lengths, resets=resets)[0]
                    values[engine] = [output, *torch.autograd.grad(output.square().sum(), [*own.parameters()])]
            pairs = zip(*values.values(), strict=True)
            off = [float((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in pairs]
            yield {
                "case": name,
                "dtype": str(dtype).removeprefix("torch."),
                "error": off[0],
                "worst gradient": max(off[1:]),
            }


def plain() -> Iterator[Figures]:
    """LSTM and GRU compared with cuDNN, at the sizes that FlashRNN and TorchRL published and at smaller ones."""
    for L, N, H in ((1024, 16, 768), (128, 64, 256), (512, 32, 1024), (512, 16, 512), (100, 32, 64), (100, 32, 128)):
        for name in ("LSTM", "GRU"):
            layer, other = (getattr(module, name)(H, H, device="cuda") for module in (gg, nn))
            for dtype in (*HALF.values(), torch.float32):
                torch.backends.cudnn.rnn.fp32_precision = "tf32"
                yield figure(f"{name}, L {L}, N {N}, H {H}", layer, other, random(L, N, H), dtype)


def options() -> Iterator[Figures]:
    """Packed input, two directions, projection, layer normalisation, resets and a user-defined cell."""
    L, N, H, dtype = 512, 16, 512, torch.bfloat16
    x = random(L, N, H)
    resets = torch.rand(L, N, device="cuda") < 0.01
    yield figure("GRU with resets", gg.GRU(H, H, device="cuda"), None, x, dtype, resets=resets)
    for name, more in (("two directions", {"bidirectional": True}), ("projection", {"proj_size": H // 2})):
        ours, other = (module.LSTM(H, H, device="cuda", **more) for module in (gg, nn))
        yield figure(f"LSTM, {name}", ours, other, x, dtype)
    lengths = torch.linspace(L, 1, N).long()
    packed = nn.utils.rnn.pack_padded_sequence(x.detach(), lengths)
    ours, other = (module.LSTM(H, H, device="cuda") for module in (gg, nn))
    yield figure("LSTM, packed", ours, other, packed, dtype)  # type: ignore[arg-type]
    yield figure("layer-normalised LSTM", gg.Recurrent(gg.cells.LayerNormLSTM(), H, H, device="cuda"), None, x, dtype)
    yield figure("user-defined cell", gg.Recurrent(Swish(), H, H, device="cuda"), None, x, dtype)


def captured() -> Iterator[Figures]:
    """A call with one sequence, captured in a CUDA graph."""
    for H in (128, 512):
        layer, x = gg.LSTM(H, H, device="cuda"), torch.randn(1, 1, H, device="cuda")
        with gg.engine("triton"), torch.no_grad():
            layer(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                layer(x)
        yield {"case": f"LSTM, one step, H {H}", "microseconds": 1e3 * milliseconds(graph.replay)}


PARTS: dict[str, Part] = {part.__name__: part for part in (launches, errors, plain, options, captured)}


def main(path: Path) -> None:
    """Runs the parts that are not in the file yet, and writes the page.

    Args:
        path: the JSON file.

    Raises:
        SystemExit: there is no CUDA GPU.
    """
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks gpu: expected a CUDA GPU, found none; run this command on a machine with one")
    chip = torch.cuda.get_device_name()
    done: Figures = json.loads(path.read_text()) if path.exists() else {}
    if done.setdefault("chip", chip) != chip:
        raise SystemExit(
            f"benchmarks gpu: {path} has figures of {done['chip']}, and this is {chip}; name another --out"
        )
    done["versions"] = {"torch": torch.__version__, "glassgate": gg.__version__}
    for name, part in PARTS.items():
        if name in done:
            continue
        print(name, flush=True)
        start, found = time.monotonic(), []
        for each in part():
            found.append(each)
            print(f"  {each}", flush=True)
            if time.monotonic() - start > LIMIT:
                break
        done[name] = found
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(done, indent=1) + "\n")
    (ROOT / "docs" / "gpu-speed.md").write_text(page(done))


def page(done: Figures) -> str:
    """The page of the figures."""
    text = f"# Speed on a GPU\n\nMeasured on one {done['chip']}, PyTorch {done['versions']['torch']}, by "
    text += "`python -m benchmarks gpu`. Times are medians in milliseconds: forward / forward and backward.\n"
    for name, part in PARTS.items():
        rows = done.get(name, [])
        if not rows:
            continue
        columns = [*dict.fromkeys(key for row in rows for key in row)]
        text += f"\n{part.__doc__}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
        text += "".join(f"| {' | '.join(shown(row.get(key)) for key in columns)} |\n" for row in rows)
    return text


def shown(value: object) -> str:
    """A value as text."""
    match value:
        case None:
            return ""
        case float():
            return f"{value:.3g}"
        case list() | tuple():
            return " / ".join(map(shown, value))
    return str(value)
