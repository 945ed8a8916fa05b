"""Exported layers in C equal the reference engine, compiled by GCC, by Clang with sanitizers, and as C++."""

import copy
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.export.errors import ExportError
from tests.compare import noise
from tests.export.cases import CELLS, STRUCTURES, drawn, layer_of_cell, layer_of_structure


class InputMean(gg.Cell):
    """The mean of a product with the input, in a loop that stores nothing per unit."""

    gates, state, recurrent = ("n", "m"), ("h",), False

    def step(self, a: Any, s: Any) -> Any:
        return torch.sigmoid(a.n) * (torch.zeros_like(a.n) + a.ih.m.mean(-1, keepdim=True))


STEPS = 12
WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
BUILDS = {
    "gcc": ["gcc", "-std=c99", "-O0", "-march=native"],
    "clang with sanitizers": ["clang", "-std=c99", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "C++, one lane": ["g++", "-x", "c++", "-O0", "-DONE_LANE"],
}
FEW = ["LSTM", "every operation", "LSTM, sizes", "GRU, projection", "layer norm in double", "tagger both ways"]
"""The networks of all builds except the first, which has all of them."""


@dataclass
class Network:
    """A module, its input and its output."""

    module: nn.Module
    x: Tensor
    expected: Tensor

    @property
    def double(self) -> bool:
        return self.expected.dtype == torch.float64


def of_layer(layer: gg.Recurrent) -> Network:
    """One sequence through a layer, computed by the reference engine, which compiles nothing."""
    x = noise(1, STEPS, layer.input_size).to(layer.weight_ih_l0)
    with torch.no_grad(), gg.engine("reference"):
        output, _ = layer(x)
    return Network(layer, x, torch.cat(output, -1) if isinstance(output, tuple) else output)


def of_uncentred(cell: gg.Cell) -> Network:
    """A layer whose pre-activations have a large mean, and its output in double."""
    layer = drawn(gg.Recurrent(cell, 3, 20))
    with torch.no_grad():
        for name, offset in (("weight_ih_l0", 1e3), ("weight_hh_l0", 1e3), ("bias_ih_l0", 1e5), ("bias_hh_l0", -1e5)):
            getattr(layer, name).add_(offset)
    network = of_layer(copy.deepcopy(layer).double())
    return Network(layer, network.x.float(), network.expected.float())


def of_tagger(bidirectional: bool) -> Network:
    """Tokens through an embedding, a layer and dense layers."""
    layer = drawn(gg.LSTM(5, 20, num_layers=2, bidirectional=bidirectional))
    parts = nn.Sequential(
        nn.Embedding(7, 5), layer, nn.Linear(layer.output_size, 11), nn.Tanh(), nn.Linear(11, 3, False)
    )
    tokens = torch.arange(STEPS) % 7
    with torch.no_grad(), gg.engine("reference"):
        output = parts[4](parts[3](parts[2](layer(parts[0](tokens))[0])))
    return Network(parts, tokens[:, None].float(), output)


NETWORKS: dict[str, Callable[[], Network]] = {name: lambda name=name: of_layer(layer_of_cell(name)) for name in CELLS}
for _name in STRUCTURES:
    NETWORKS[f"LSTM, {_name}"] = lambda name=_name: of_layer(layer_of_structure(gg.LSTM, name))
NETWORKS |= {
    "heads as wide as a block": lambda: of_layer(drawn(gg.Recurrent(gg.cells.SLSTM(2), 3, 32))),
    "GRU, projection": lambda: of_layer(layer_of_structure(gg.GRU, "projection")),
    "heads, projected": lambda: of_layer(drawn(gg.Recurrent(gg.cells.SLSTM(2), 3, 8, proj_size=4))),
    "layer norm of a large mean": lambda: of_uncentred(gg.cells.LayerNormLSTM()),
    "layer norm of a large mean, GRU": lambda: of_uncentred(gg.cells.LayerNormGRU()),
    "layer norm in double": lambda: of_layer(drawn(gg.Recurrent(gg.cells.LayerNormLSTM(), 3, 9, dtype=torch.float64))),
    "mean of whole blocks": lambda: of_layer(drawn(gg.Recurrent(InputMean(), 3, 16))),
    "tagger": lambda: of_tagger(False),
    "tagger both ways": lambda: of_tagger(True),
}  # fmt: skip


def write(folder: Path, networks: dict[str, Network]) -> None:
    """All networks as C, and a program that writes their outputs."""
    program = ["#include <stdio.h>"] + [f'#include "net{k}.h"' for k in range(len(networks))]
    for k, network in enumerate(networks.values()):
        weights = k % 3 == 2
        gg.to_c(network.module, folder, f"net{k}", weights="file" if weights else "const", max_steps=STEPS)
        real, numbers = ("double" if network.double else "float"), network.x.reshape(-1).tolist()
        values = ", ".join(v.hex() if network.double else f"(float){v.hex()}" for v in numbers)
        program += [
            f"static net{k}_state s{k};",
            f"static net{k}_weights w{k};" if weights else "",
            f"static int run{k}(void) {{",
            f"    static const {real} x[] = {{{values}}};",
            f"    static {real} y[{STEPS} * net{k}_output_size];",
            f'    if (net{k}_load(&w{k}, "net{k}.weights")) return 1;' if weights else "",
            f"    net{k}_init(&s{k}{f', &w{k}' if weights else ''});",
            f"    net{k}_run(&s{k}, x, y, 3);",
            f"    net{k}_reset(&s{k});",
            f"    if (net{k}_run(&s{k}, x, y, {STEPS})) return 1;",
            "    return fwrite(y, sizeof y, 1, stdout) != 1;",
            "}",
        ]
    calls = " || ".join(f"run{k}()" for k in range(len(networks)))
    program.append(f"int main(void) {{ return {calls}; }}\n")
    (folder / "main.c").write_text("\n".join(program))


@pytest.mark.parametrize("build", BUILDS)
def test_every_network(build: str, tmp_path: Path) -> None:
    compiler, *flags = BUILDS[build]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    networks = {name: make() for name, make in NETWORKS.items() if build == "gcc" or name in FEW}
    write(tmp_path, networks)
    files = ["main.c", *(f"net{k}.c" for k in range(len(networks)))]
    command = [compiler, *flags, *WARNINGS, *files, "-o", "program", "-lm"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]
    output = subprocess.run(["./program"], cwd=tmp_path, capture_output=True)
    assert output.returncode == 0, output.stderr[:3000]
    place, wrong = 0, []
    for name, network in networks.items():
        expected = network.expected.numpy()
        array = np.frombuffer(output.stdout, expected.dtype, expected.size, place).reshape(expected.shape)
        place += expected.nbytes
        largest = max(1.0, float(np.abs(expected).max()))
        off = float(np.abs(array - expected).max())
        if not off <= (1e-12 if network.double else 1e-6) * largest:
            wrong.append(f"{name}: off by {off:.2g}")
    assert place == len(output.stdout)
    assert not wrong, "\n".join(wrong)


def test_the_code_names_gates_and_allocates_nothing(tmp_path: Path) -> None:
    header, source = gg.to_c(drawn(gg.LSTM(3, 8)), tmp_path, "net")
    text = source.read_text()
    assert "const lanes c = f * load(state_c + at) + i * g;" in text
    assert "const lanes i = sigmoid_lanes(i_pre);" in text
    assert "malloc" not in text
    assert "log_lanes" not in text
    for function in ("net_state", "net_init", "net_reset", "net_step", "net_run"):
        assert function in header.read_text()


def test_errors(tmp_path: Path) -> None:
    layer = gg.LSTM(3, 4)
    with pytest.raises(ExportError, match="name must be a C identifier, got 'my net'"):
        gg.to_c(layer, tmp_path, "my net")
    with pytest.raises(ExportError, match="weights must be 'const' or 'file', got 'json'"):
        gg.to_c(layer, tmp_path, weights="json")
    with pytest.raises(ExportError, match="max_steps must be a positive integer, got 0"):
        gg.to_c(layer, tmp_path, max_steps=0)
    with pytest.raises(ExportError, match="keys of the ModuleDict may only contain letters, digits and _, got"):
        gg.to_c(nn.ModuleDict({"my net": layer}), tmp_path)
    with pytest.raises(ExportError, match=r"expected layers of glassgate, Linear, .* got Conv1d"):
        gg.to_c(nn.Conv1d(3, 4, 2), tmp_path)
    with pytest.raises(
        ExportError, match=r"got torch\.nn\.LSTM; replace the layers of torch\.nn by those of glassgate"
    ):
        gg.to_c(nn.Sequential(nn.LSTM(3, 4)), tmp_path)
    with pytest.raises(
        ExportError, match="Linear must have 4 inputs, one for each output of the part before it, got 5"
    ):
        gg.to_c(nn.Sequential(layer, nn.Linear(5, 2)), tmp_path)
    with pytest.raises(ExportError, match="parameters must be all float32 or all float64, got"):
        gg.to_c(layer.to(torch.bfloat16), tmp_path)
    with pytest.raises(ExportError, match="expected a layer, got a module without one"):
        gg.to_c(nn.Sequential(), tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match=r"cannot write to .*; choose another path"):
        gg.to_c(gg.LSTM(3, 4), tmp_path / "file")
