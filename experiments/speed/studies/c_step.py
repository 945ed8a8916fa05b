"""`python -m benchmarks c_step RTNEURAL` measures one step with one input in C.

LSTM and GRU are compared with RTNeural, and other cells with the LSTM. RTNEURAL is a folder with the sources of
RTNeural (https://github.com/jatinchowdhury18/RTNeural). Both programs are compiled with the same flags. They run in
turn. The table has the CPU time of the shortest round of each program.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

import glassgate as gg

SIZES = (8, 16, 32, 64)
FLAGS = ["-O3", "-march=native", "-ffast-math"]
STEPS, ROUNDS = 4000, 100


class Leaky(gg.Cell):
    """A custom cell: a leaky unit whose leak is a gate."""

    gates = ("f", "n")
    state = ("h",)

    def step(self, a: Any, s: Any) -> Any:
        f = torch.sigmoid(a.f)
        return f * s.h + (1 - f) * torch.tanh(a.n)


CELLS = {"lstm": gg.cells.LSTM, "gru": gg.cells.GRU, "layernorm": gg.cells.LayerNormLSTM, "custom": Leaky}

_PROGRAM = """\
#include <RTNeural/RTNeural.h>
#include <cmath>
#include <cstdio>
#include <ctime>
{includes}
static const int STEPS = {steps}, ROUNDS = {rounds};
static float samples[STEPS], sink;

static double now() {{
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}}

template <typename Step> static void measure(double &best, Step step) {{
    const double start = now();
    for (int t = 0; t < STEPS; t++) sink += step(&samples[t]);
    const double time = 1e6 * (now() - start) / STEPS;
    if (time < best) best = time;
}}

int main() {{
    for (int t = 0; t < STEPS; t++) samples[t] = std::sin(0.01f * t);
{body}
    return sink == 1e30f;
}}
"""


def measuring_code(size: int, folder: Path) -> str:
    """Write the networks of one size to the folder, and return the C++ code that measures them."""
    lines = []
    for name, cell in CELLS.items():
        torch.manual_seed(size)
        layer = gg.Recurrent(cell(), 1, size).eval()
        gg.to_c(layer, folder, f"{name}{size}")
        lines += [f"    static {name}{size}_state {name}; {name}{size}_init(&{name}); double t_{name} = 1e9;"]
        lines += [f"    float y_{name}[{size}];"]
        if name in ("lstm", "gru"):
            kind = {"lstm": gg.LSTM, "gru": gg.GRU}[name]
            drop_in = kind(1, size)
            drop_in.load_state_dict(layer.state_dict())
            gg.to_rtneural(nn.Sequential(drop_in), folder / f"{name}{size}.json")
            rtneural_layer = f"RTNeural::{name.upper()}LayerT<float, 1, {size}>"
            lines += [
                f"    static RTNeural::ModelT<float, 1, {size}, {rtneural_layer}> rt_{name}; double r_{name} = 1e9;"
            ]
            lines += [f'    std::ifstream file_{name}("{name}{size}.json", std::ifstream::binary);']
            lines += [f"    rt_{name}.parseJson(file_{name}); rt_{name}.reset(); float error_{name} = 0;"]
            lines += [
                "    for (int t = 0; t < STEPS; t++) {",
                f"        {name}{size}_step(&{name}, &samples[t], y_{name});",
                f"        rt_{name}.forward(&samples[t]);",
                f"        for (int j = 0; j < {size}; j++)",
                f"            error_{name} = std::fmax(error_{name}, "
                f"std::fabs(y_{name}[j] - rt_{name}.getOutputs()[j]));",
                "    }",
            ]
    lines.append("    for (int round = 0; round < ROUNDS; round++) {")
    for name in CELLS:
        step = f"{name}{size}_step(&{name}, x, y_{name}); return y_{name}[0];"
        lines.append(f"        measure(t_{name}, [&](const float *x) {{ {step} }});")
        if name in ("lstm", "gru"):
            lines.append(f"        measure(r_{name}, [&](const float *x) {{ return rt_{name}.forward(x); }});")
    lines.append("    }")
    row = ", ".join(["t_lstm, r_lstm, r_lstm / t_lstm", "t_gru, r_gru, r_gru / t_gru"])
    rest = "t_layernorm / t_lstm, t_custom / t_lstm, error_lstm, error_gru"
    formats = "| " + " | ".join([str(size), *["%.3f", "%.3f", "%.2f"] * 2, "%.2f", "%.2f", "%.1e", "%.1e"]) + " |"
    lines.append(f'    std::printf("{formats}\\n", {row}, {rest});')
    return "    {\n" + "\n".join(lines) + "\n    }"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the study."""
    parser.add_argument("rtneural", type=Path, help="folder with the sources of RTNeural")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)


def run(options: argparse.Namespace) -> None:
    """Build and run the program, which prints a table."""
    source = options.rtneural.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        body = "\n".join(measuring_code(size, folder) for size in options.sizes)
        includes = "\n".join(f'#include "{cell}{size}.h"' for size in options.sizes for cell in CELLS)
        text = _PROGRAM.format(includes=includes, body=body, steps=STEPS, rounds=options.rounds)
        (folder / "main.cpp").write_text(text)
        for path in sorted(folder.glob("*.c")):
            subprocess.run(["gcc", "-std=gnu99", *FLAGS, "-c", path.name], cwd=folder, check=True)
        objects = [path.name for path in folder.glob("*.o")]
        rtneural_flags = [f"-I{source}", f"-I{source}/modules/Eigen", "-DRTNEURAL_USE_EIGEN=1", "-std=c++17", "-w"]
        files = ["main.cpp", f"{source}/RTNeural/RTNeural.cpp", *objects, "-lm", "-o", "program"]
        subprocess.run(["g++", *FLAGS, *rtneural_flags, *files], cwd=folder, check=True)
        print("| units | LSTM, us | RTNeural, us | speedup | GRU, us | RTNeural, us | speedup |", end=" ")
        print("layer-normalised LSTM / LSTM | custom cell / LSTM | LSTM error | GRU error |")
        print("|" + "---|" * 11, flush=True)
        subprocess.run(["./program"], cwd=folder, check=True)
