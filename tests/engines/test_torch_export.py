"""Layers in programs of torch.export."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn.utils.rnn import PackedSequence

import glassgate as gg
from tests.compare import check, noise
from tests.engines.test_torch_op import call, layer_of
from tests.forked import run_python


@pytest.mark.parametrize("strict", [False, True])
def test_exports_with_any_length_and_batch(strict):
    layer = layer_of()
    with gg.engine("cpu"), torch.no_grad():
        program = torch.export.export(
            layer, (noise(1, 5, 3, 3),), dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},), strict=strict
        )
        x = noise(2, 9, 2, 3)
        output, final = program.module()(x)
    check({"output": output, "h_n": final}, {k: v.detach() for k, v in call(layer, x).items()})
    assert "glassgate.layer" in program.graph_module.code


@pytest.mark.parametrize("modules", ["glassgate, torch", "torch"])
def test_a_saved_program_contains_its_equations(tmp_path, modules):
    """Without an import of glassgate, torch finds the operator by the entry point. The test installs it as pip does.

    The class of the custom cell does not exist in the process that loads the program. The process loads it again after
    an import of glassgate.
    """

    class Local(gg.Cell):
        gates = ("x", "y")

        def step(self, a, s):
            return torch.tanh(a.x) * torch.sigmoid(a.y) - 0.1 * s.h

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = gg.RNN(3, 4, nonlinearity="relu", dtype=torch.float64)
            self.local = gg.Recurrent(Local(), 4, 4, dtype=torch.float64)

        def forward(self, x):
            return self.local(self.layer(x)[0])[0]

    x = noise(1, 5, 3, 3)
    with gg.engine("cpu"), torch.no_grad():
        module = Both()
        torch.export.save(torch.export.export(module, (x,)), tmp_path / "program.pt2")
        torch.save((x, module(x)), tmp_path / "expected.pt")
    text = (
        f"import sys, {modules}\n"
        "x, expected = torch.load(sys.argv[2])\n"
        "assert torch.equal(torch.export.load(sys.argv[1]).module()(x), expected)\n"
        "import glassgate\n"
        "assert torch.equal(torch.export.load(sys.argv[1]).module()(x), expected)\n"
    )
    root = Path(__file__).parents[2]
    points = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["torch.backends"]
    if modules != "torch":  # the processes that tests share have imported both
        done = run_python("-c", text, str(tmp_path / "program.pt2"), str(tmp_path / "expected.pt"))
        assert done.returncode == 0, done.stderr
        return
    installed = tmp_path / "glassgate-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: glassgate\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(f"[torch.backends]\nglassgate = {points['glassgate']}\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"}
    command = [sys.executable, "-c", text, tmp_path / "program.pt2", tmp_path / "expected.pt"]
    subprocess.run(command, check=True, env=environment)


@pytest.mark.parametrize("strict", [False, True])
def test_a_packed_sequence_is_an_error_that_names_the_remedy(strict):
    class Packing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = gg.LSTM(3, 4)

        def forward(self, rows, batch_sizes):
            return self.layer(PackedSequence(rows, batch_sizes))[0].data

    arguments = noise(1, 7, 3).float(), torch.tensor([2, 2, 1, 1, 1])
    with pytest.raises(Exception, match=r"torch\.export does not support a PackedSequence.* with lengths="):
        torch.export.export(Packing(), arguments, strict=strict)
