"""Recurrent nodes of ONNX models as layers."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import glassgate as gg
from glassgate.export.errors import ExportError
from tests.export.cases import drawn, layer_of_cell


@pytest.mark.parametrize("name", ["RNN", "RNN with relu", "GRU", "GRUv3", "LSTM", "PeepholeLSTM", "CIFG"])
def test_an_exported_layer_can_be_imported(name: str, tmp_path: Path) -> None:
    layer = layer_of_cell(name, bidirectional=True)
    (imported,) = gg.from_onnx(gg.to_onnx(layer, tmp_path / "model.onnx")).values()
    x = torch.randn(4, 2, layer.input_size)
    with torch.no_grad():
        torch.testing.assert_close(imported(x)[0], layer(x)[0], rtol=0, atol=1e-6)


def test_sizes_and_depth_can_be_imported(tmp_path: Path) -> None:
    layer = drawn(gg.GRU(3, [(4, 6), (2, 5)], num_layers=2, bidirectional=True, bias=False))
    first, second = gg.from_onnx(gg.to_onnx(layer, tmp_path / "model.onnx")).values()
    x = torch.randn(4, 2, 3)
    with torch.no_grad():
        torch.testing.assert_close(second(first(x)[0])[0], layer(x)[0], rtol=0, atol=1e-6)


def write(path: Path, kind: str = "LSTM", fixed: bool = True, peepholes: bool = False, **attributes: object) -> Path:
    """A model of one node."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}.get(kind, 1)
    arrays = {"W": np.ones((1, gates * 2, 3), np.float32), "R": np.ones((1, gates * 2, 2), np.float32)}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["L", "N", 3])]
    if not fixed:
        inputs += [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in arrays.items()]
    names = ["x"] if kind == "Relu" else ["x", "W", "R"]
    if peepholes:
        arrays["P"] = np.ones((1, 6), np.float32)
        names += ["", "", "", "", "P"]
    node = helper.make_node(kind, names, ["y"], name="node", **attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    numbers = [numpy_helper.from_array(value, name) for name, value in arrays.items()] if fixed else []
    onnx.save(helper.make_model(helper.make_graph([node], "graph", inputs, [output], numbers)), path)
    return path


def test_activations_and_batch_first(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", hidden_size=2, layout=1, activations=["Sigmoid", "Softsign", "Tanh"])
    (layer,) = gg.from_onnx(path).values()
    assert repr(layer.cell) == "ActivatedLSTM(gate='sigmoid', new='softsign', output='tanh')"
    assert layer.batch_first


@pytest.mark.parametrize("difference", ["none", "order", "activations", "bias", "layout"])
def test_nodes_with_the_same_input_join_if_only_their_weights_differ(difference: str, tmp_path: Path) -> None:
    """Other nodes stay separate layers: one cell and one set of options must describe both directions of a layer."""
    nodes, arrays = [], {}
    for name, direction, value in (("ahead", "forward", 0.5), ("back", "reverse", 0.25)):
        arrays |= {f"{name}.W": np.full((1, 2, 3), value), f"{name}.R": np.full((1, 2, 2), value)}
        names, options = ["x", f"{name}.W", f"{name}.R"], {}
        if difference == "bias" and name == "back":
            arrays["B"] = np.ones((1, 4))
            names.append("B")
        if difference in ("activations", "layout") and name == "back":
            options = {"activations": ["Relu"]} if difference == "activations" else {"layout": 1}
        nodes.append(helper.make_node("RNN", names, [name], name=name, direction=direction, hidden_size=2, **options))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["L", "N", 3])
    outputs = [helper.make_tensor_value_info(node.name, TensorProto.FLOAT, None) for node in nodes]
    numbers = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in arrays.items()]
    graph = helper.make_graph(nodes[::-1] if difference == "order" else nodes, "graph", [x], outputs, numbers)
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    layers = gg.from_onnx(tmp_path / "m.onnx")
    if difference in ("none", "order"):
        (layer,) = layers.values()
        assert layer.weight_ih_l0[0, 0].item() == 0.5
        assert layer.weight_ih_l0_reverse[0, 0].item() == 0.25
    else:
        assert [*layers] == ["ahead", "back"]


def test_errors(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(ExportError, match=r"from_onnx: cannot read .*: No such file"):
        gg.from_onnx(path)
    path.write_text("no model")
    with pytest.raises(ExportError, match="is not an ONNX model"):
        gg.from_onnx(path)
    with pytest.raises(ExportError, match="has no RNN, GRU or LSTM node, only Relu"):
        gg.from_onnx(write(path, "Relu"))
    with pytest.raises(ExportError, match=r"node node \(LSTM\) has clip=1.0, which no cell has"):
        gg.from_onnx(write(path, clip=1.0))
    with pytest.raises(ExportError, match=r"has activations \('Affine',\); supported are Sigmoid"):
        gg.from_onnx(write(path, "RNN", activations=["Affine"]))
    with pytest.raises(ExportError, match="must have fixed weights, but its input W is computed"):
        gg.from_onnx(write(path, fixed=False))
    with pytest.raises(ExportError, match=r"node node \(LSTM\) has peepholes and coupled gates, which no cell has"):
        gg.from_onnx(write(path, peepholes=True, hidden_size=2, input_forget=1))
    with pytest.raises(ExportError, match=r"\('Tanh', 'Relu'\); expected 1, the same in both directions"):
        gg.from_onnx(write(path, "RNN", activations=["Tanh", "Relu"]))
    with pytest.raises(ExportError, match="which no cell with its other attributes has"):
        gg.from_onnx(write(path, "GRU", activations=["Relu", "Tanh"]))
