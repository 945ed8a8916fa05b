"""Exported layers in ONNX Runtime and OpenVINO equal the layers."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import glassgate as gg
from glassgate.export import onnx_verify
from glassgate.export.errors import ExportError
from glassgate.export.onnx_verify import Session
from tests.compare import noise
from tests.engines.llvm_cpu.array_cells import Projectable
from tests.export.cases import (
    ARRAYS,
    CELLS,
    RAGGED,
    STRUCTURES,
    drawn,
    layer_of_arrays,
    layer_of_cell,
    layer_of_structure,
)
from tests.openvino_core import core

OPERATORS = {"RNN", "GRU", "LSTM", "Scan"}
NATIVE = {
    "RNN": "RNN", "RNN with relu": "RNN", "GRU": "GRU", "GRUv3": "GRU",
    "LSTM": "LSTM", "PeepholeLSTM": "LSTM", "CIFG": "LSTM",
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("name", CELLS)
def test_every_cell(name: str, path: Path) -> None:
    """`to_onnx` compares the results on ragged input itself; the operator is the expected one."""
    gg.to_onnx(layer_of_cell(name), path)
    kinds = [node.op_type for node in onnx.load(path).graph.node if node.op_type in OPERATORS]
    assert kinds == [NATIVE.get(name, "Scan")]
    gg.to_onnx(layer_of_cell(name), path, step=True)


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("kind", [gg.LSTM, gg.GRU])
def test_every_structure(name: str, kind: Any, path: Path) -> None:
    layer = layer_of_structure(kind, name)
    gg.to_onnx(layer, path)
    gg.to_onnx(layer, path, resets=True)
    if not layer.bidirectional:
        gg.to_onnx(layer, path, step=True)


@pytest.mark.filterwarnings("ignore:cell .* runs on the reference engine")
@pytest.mark.parametrize("name", ARRAYS)
def test_cells_with_declared_axes(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_lengths = name != "step with merged axes"  # torch cannot reshape an empty batch
    layer = layer_of_arrays(name, num_layers=1 + (not ARRAYS[name].inputs), bidirectional=True)
    gg.to_onnx(layer_of_arrays(name), path, step=True)
    # ONNX Runtime stores the constant factor of a matrix product in float32.
    monkeypatch.setattr(onnx_verify, "TOLERANCE", 1e-7 if name == "CfC" else 1e-12)
    gg.to_onnx(layer.double(), path, lengths=has_lengths, resets=True)
    assert [node.op_type for node in onnx.load(path).graph.node].count("Scan") == 2 * layer.num_layers


def test_projections_of_cells_with_declared_axes(path: Path) -> None:
    layer = drawn(gg.Recurrent(Projectable(), 3, 6, num_layers=2, proj_size=2, bidirectional=True))
    gg.to_onnx(layer.double(), path, lengths=True, resets=True)  # compares the model with the layer


@pytest.mark.filterwarnings("ignore:cell .* runs on the reference engine")
@pytest.mark.parametrize("name", ["DeltaRule", "MLSTM", "step with softmax", "step with maxima"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arrays_with_numbers_that_are_not_finite(name: str, dtype: torch.dtype, path: Path) -> None:
    layer = layer_of_arrays(name).to(dtype)
    model = Session(gg.to_onnx(layer, path, lengths=False, defaults=True))
    x = noise(0, 5, 5, layer.input_size).to(dtype)
    x[1, 0, 0], x[2, 1, 1], x[1, 2, -1] = torch.inf, -torch.inf, torch.nan
    x[:, 3] *= 1e4 if dtype == torch.float32 else 1e30
    with gg.engine("reference"):
        expected, _ = layer(x)
    torch.testing.assert_close(model(input=x)["output"], expected.detach(), rtol=1e-4, atol=1e-4, equal_nan=True)


def test_results_equal_the_layer_on_ragged_input(path: Path) -> None:
    """The comparison again, written out: lengths, initial states, two directions."""
    layer = drawn(gg.LSTM(RAGGED.H_in, RAGGED.H_cell, num_layers=2, bidirectional=True))
    model = Session(gg.to_onnx(layer, path))
    x, h, c = torch.randn(RAGGED.L, RAGGED.N, RAGGED.H_in), *torch.randn(2, 4, RAGGED.N, RAGGED.H_cell)
    lengths = torch.tensor(RAGGED.lengths)
    results = model(input=x, lengths=lengths, h_0=h, c_0=c)
    with torch.no_grad():
        output, (h_n, c_n) = layer(x, (h, c), lengths=lengths)
    for name, value in (("output", output), ("h_n", h_n), ("c_n", c_n)):
        torch.testing.assert_close(results[name], value, rtol=0, atol=1e-5)


def test_a_step_model_runs_a_stream(path: Path) -> None:
    layer = drawn(gg.GRU(3, 5, num_layers=2))
    model = Session(gg.to_onnx(layer, path, step=True))
    x = torch.randn(7, 2, 3)
    state, outputs = torch.zeros(2, 2, 5), []
    for x_t in x:
        results = model(input=x_t, h_0=state)
        state = results["h_n"]
        outputs.append(results["output"])
    torch.testing.assert_close(torch.stack(outputs), layer(x)[0], rtol=0, atol=1e-5)


def test_a_difference_is_found_and_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_verify, "TOLERANCE", 0.0)
    with pytest.raises(ExportError, match="ONNX Runtime and the layer differ in output by"):
        gg.to_onnx(drawn(gg.LSTM(3, 8)), path)
    assert list(path.parent.iterdir()) == []
    gg.to_onnx(drawn(gg.LSTM(3, 8)), path, verify=False)
    assert list(path.parent.iterdir()) == [path]


def test_inputs_with_default_values(path: Path) -> None:
    for layer in (layer_of_structure(gg.LSTM, "sizes"), layer_of_structure(gg.GRU, "sum")):
        gg.to_onnx(layer, path, defaults=True, resets=True)  # its check leaves the inputs out, too
        assert [given.name for given in Session(path).inputs] == ["input"]
    gg.to_onnx(layer, path)
    assert [given.name for given in Session(path).inputs] == ["input", "lengths", "h_0"]


def test_metadata_and_opset(path: Path) -> None:
    model = onnx.load(gg.to_onnx(gg.LSTM(3, 4), path, opset=20, metadata={"labels": "a b"}))
    assert {entry.key: entry.value for entry in model.metadata_props}["labels"] == "a b"
    assert model.opset_import[0].version == 20


class Coin(gg.Cell):
    gates = ("h",)

    def step(self, a: Any, s: Any) -> Any:
        return torch.fft.rfft(a.h).real


SOFTMAX = """
class Soft(gg.Cell):
    gates = ("n",)

    def step(self, a, s):
        return torch.softmax(a.n, -1)
"""


def test_errors(path: Path) -> None:
    with pytest.raises(ExportError, match=r"opset must be from 18 to \d+, got 7"):
        gg.to_onnx(gg.LSTM(3, 4), path, opset=7)
    with pytest.raises(ExportError, match="step=True needs one direction, got bidirectional=True"):
        gg.to_onnx(gg.LSTM(3, 4, bidirectional=True), path, step=True)
    with pytest.raises(ExportError, match="parameters must be float32 or float64, got torch"):
        gg.to_onnx(gg.LSTM(3, 4, dtype=torch.bfloat16), path)
    with pytest.raises(ExportError, match=r"cannot write to .*: No such file or directory; create the folder, or"):
        gg.to_onnx(gg.LSTM(3, 4), path.parent / "missing" / "model.onnx")
    with pytest.raises(ExportError, match="expected the path of a file, got the folder"):
        gg.to_onnx(gg.LSTM(3, 4), path.parent)
    with pytest.raises(ExportError, match=r"cell Coin: .*rfft.*test_onnx.py.*; write this step with other operations"):
        gg.to_onnx(gg.Recurrent(Coin(), 3, 4), path)
    names = {"torch": torch, "gg": gg}
    exec(SOFTMAX, names)  # as in `python -c` and in notebooks, where the class has no source file
    with pytest.raises(ExportError, match=r"cell Soft: step uses torch.softmax.*\(<string>, line 6\); write this step"):
        gg.to_onnx(gg.Recurrent(names["Soft"](), 3, 4), path)
    with pytest.raises(
        ExportError, match="Linear is not a layer of glassgate, so inputs must be a tuple of example arguments, got "
    ):
        gg.to_onnx(torch.nn.Linear(3, 4), path)
    layer = gg.LSTM(3, 4)
    with gg.record(layer), pytest.raises(ExportError, match="being recorded or edited"):
        gg.to_onnx(layer, path)
    assert list(path.parent.iterdir()) == []


def test_a_missing_package_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to_onnx = gg.to_onnx
    monkeypatch.delitem(sys.modules, "onnx")
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[-1:])
    with pytest.raises(
        ImportError, match=r"the package onnx is not installed; install it with: pip install 'glassgate\[export\]'"
    ):
        to_onnx(gg.LSTM(3, 4), path)


def in_openvino(path: Path, given: dict[str, torch.Tensor]) -> np.ndarray:
    """The output of a model in OpenVINO."""
    model = core().compile_model(path, "CPU")
    results: np.ndarray = model({name: value.numpy() for name, value in given.items()})["output"]
    return results


@pytest.mark.parametrize("name", ["RNN", "GRU", "GRUv3", "LSTM", "CIFG"])
def test_operators_in_openvino(name: str, path: Path) -> None:
    """OpenVINO ignores the lengths of these operators."""
    layer = layer_of_cell(name, bidirectional=True)
    gg.to_onnx(layer, path, lengths=False)
    given = {"input": torch.randn(5, 3, RAGGED.H_in)}
    hx = tuple(torch.randn(2, 3, 6) for _ in layer.cell.state)
    given |= {f"{state}_0": value for state, value in zip(layer.cell.state, hx, strict=True)}
    with torch.no_grad():
        output, _ = layer(given["input"], hx if len(hx) > 1 else hx[0])
    np.testing.assert_allclose(in_openvino(path, given), output.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["LSTM", "PeepholeLSTM", "LayerNormLSTM", "SLSTM of 2 heads", "custom"])
def test_scan_with_lengths_in_openvino(name: str, path: Path) -> None:
    layer = layer_of_cell(name, bidirectional=True)
    gg.to_onnx(layer, path, operators=False)
    given = {"input": torch.randn(5, 3, RAGGED.H_in), "lengths": torch.tensor([5, 0, 2])}
    with torch.no_grad():
        output, _ = layer(given["input"], lengths=given["lengths"])
    given |= {f"{state}_0": torch.zeros(2, 3, 6) for state in layer.cell.state}
    np.testing.assert_allclose(in_openvino(path, given), output.numpy(), rtol=0, atol=1e-5)


def test_a_file_that_onnx_runtime_cannot_load_is_an_export_error(path: Path) -> None:
    path.write_bytes(b"no model")
    with pytest.raises(ExportError, match="to_onnx: ONNX Runtime cannot load the model"):
        Session(path)
