"""The time of one step in C, with one input: LSTM and GRU vs. RTNeural, and other cells vs. the LSTM.

    python -m benchmarks.c_step RTNEURAL

RTNEURAL is a folder with the sources of RTNeural (https://github.com/jatinchowdhury18/RTNeural). Both sides are
compiled with the same flags. Rounds alternate between the contestants, and the table has the shortest round of each, in
CPU time.
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
static float sound[STEPS], sink;

static double now() {{
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}}

template <typename Step> static void measure(double &best, Step step) {{
    const double start = now();
    for (int t = 0; t < STEPS; t++) sink += step(&sound[t]);
    const double time = 1e6 * (now() - start) / STEPS;
    if (time < best) best = time;
}}

int main() {{
    for (int t = 0; t < STEPS; t++) sound[t] = std::sin(0.01f * t);
{body}
    return sink == 1e30f;
}}
"""


def size_program(size: int, folder: Path) -> str:
    """Write the networks of one size, and return the part of the program that measures them."""
    lines = []
    for name, cell in CELLS.items():
        torch.manual_seed(size)
        layer = gg.Recurrent(cell(), 1, size).eval()
        gg.to_c(layer, folder, f"{name}{size}")
        lines += [f"    static {name}{size}_state {name}; {name}{size}_init(&{name}); double t_{name} = 1e9;"]
        lines += [f"    float y_{name}[{size}];"]
        if name in ("lstm", "gru"):
            kind = {"lstm": gg.LSTM, "gru": gg.GRU}[name]
            plain = kind(1, size)
            plain.load_state_dict(layer.state_dict())
            gg.to_rtneural(nn.Sequential(plain), folder / f"{name}{size}.json")
            theirs = f"RTNeural::{name.upper()}LayerT<float, 1, {size}>"
            lines += [f"    static RTNeural::ModelT<float, 1, {size}, {theirs}> rt_{name}; double r_{name} = 1e9;"]
            lines += [f'    std::ifstream file_{name}("{name}{size}.json", std::ifstream::binary);']
            lines += [f"    rt_{name}.parseJson(file_{name}); rt_{name}.reset(); float off_{name} = 0;"]
            lines += [
                "    for (int t = 0; t < STEPS; t++) {",
                f"        {name}{size}_step(&{name}, &sound[t], y_{name});",
                f"        rt_{name}.forward(&sound[t]);",
                f"        for (int j = 0; j < {size}; j++)",
                f"            off_{name} = std::fmax(off_{name}, std::fabs(y_{name}[j] - rt_{name}.getOutputs()[j]));",
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
    rest = "t_layernorm / t_lstm, t_custom / t_lstm, off_lstm, off_gru"
    formats = "| " + " | ".join([str(size), *["%.3f", "%.3f", "%.2f"] * 2, "%.2f", "%.2f", "%.1e", "%.1e"]) + " |"
    lines.append(f'    std::printf("{formats}\\n", {row}, {rest});')
    return "    {\n" + "\n".join(lines) + "\n    }"


def main() -> None:
    """Build the program and print its table."""
    parser = argparse.ArgumentParser(description="Time of one step in C, compared with RTNeural.")
    parser.add_argument("rtneural", type=Path, help="folder with the sources of RTNeural")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    source = options.rtneural.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        body = "\n".join(size_program(size, folder) for size in options.sizes)
        includes = "\n".join(f'#include "{cell}{size}.h"' for size in options.sizes for cell in CELLS)
        text = _PROGRAM.format(includes=includes, body=body, steps=STEPS, rounds=options.rounds)
        (folder / "main.cpp").write_text(text)
        for path in sorted(folder.glob("*.c")):
            subprocess.run(["gcc", "-std=gnu99", *FLAGS, "-c", path.name], cwd=folder, check=True)
        objects = [path.name for path in folder.glob("*.o")]
        own = [f"-I{source}", f"-I{source}/modules/Eigen", "-DRTNEURAL_USE_EIGEN=1", "-std=c++17", "-w"]
        files = ["main.cpp", f"{source}/RTNeural/RTNeural.cpp", *objects, "-lm", "-o", "program"]
        subprocess.run(["g++", *FLAGS, *own, *files], cwd=folder, check=True)
        print("| units | LSTM, us | RTNeural, us | speedup | GRU, us | RTNeural, us | speedup |", end=" ")
        print("layer-normalised LSTM / LSTM | custom cell / LSTM | LSTM error | GRU error |")
        print("|" + "---|" * 11, flush=True)
        subprocess.run(["./program"], cwd=folder, check=True)


if __name__ == "__main__":
    main()
