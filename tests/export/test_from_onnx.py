"""Recurrent nodes of ONNX models as layers."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
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


def test_models_of_the_current_torch_exporter(tmp_path: Path) -> None:
    """The exporter computes large weights with nodes, and stores them in a second file."""
    module, x = torch.nn.LSTM(3, 50, bidirectional=True).eval(), torch.randn(4, 2, 3)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), tmp_path / "m.onnx", dynamo=True, verbose=False)
    (layer,) = gg.from_onnx(tmp_path / "m.onnx").values()
    with torch.no_grad():
        torch.testing.assert_close(layer(x)[0], module(x)[0], rtol=0, atol=1e-6)
    file = tmp_path / "m.onnx.data"
    content = file.read_bytes()
    file.write_bytes(content[:100])
    with pytest.raises(ExportError, match=r"from_onnx: input W of node .* cannot be read"):
        gg.from_onnx(tmp_path / "m.onnx")
    file.unlink()
    with pytest.raises(ExportError, match=r"from_onnx: input W of node .* cannot be read \(FileNotFoundError: .*\)"):
        gg.from_onnx(tmp_path / "m.onnx")


GATES, H = {"LSTM": 4, "GRU": 3, "RNN": 1}, 5
RNG = np.random.default_rng(0)


def random_arrays(kind: str, D: int = 1, dtype: str = "float32") -> dict[str, np.ndarray]:
    rows = GATES[kind] * H
    shapes = {"W": (D, rows, 3), "R": (D, rows, H), "B": (D, 2 * rows)}
    return {name: (RNG.standard_normal(shape) / 2).astype(dtype) for name, shape in shapes.items()}


def save(path: Path, kind: str, arrays: dict[str, np.ndarray], before: list = (), opset: int = 17, **options) -> Path:  # type: ignore[type-arg,assignment,no-untyped-def]
    """A model of one recurrent node, whose weights other nodes may compute from the arrays."""
    type_of_x = helper.np_dtype_to_tensor_dtype(options.pop("type_of_x", np.dtype("float32")))
    node = helper.make_node(kind, ["x", "W", "R", "B"], ["y"], name="node", hidden_size=H, **options)
    x = helper.make_tensor_value_info("x", type_of_x, ["L", "N", 3])
    y = helper.make_tensor_value_info("y", type_of_x, None)
    tensors = [numpy_helper.from_array(value, name) for name, value in arrays.items()]
    graph = helper.make_graph([*before, node], "graph", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def assert_equals_onnxruntime(path: Path, tolerance: float = 1e-6) -> None:
    (layer,) = gg.from_onnx(path).values()
    x = RNG.standard_normal((4, 2, 3)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})[0].transpose(0, 2, 1, 3).reshape(4, 2, -1)  # (L, D, N, H)
    with torch.no_grad():
        output = layer(torch.from_numpy(x))[0]
    np.testing.assert_allclose(output.numpy(), expected, rtol=0, atol=tolerance)


def test_weights_that_nodes_compute(tmp_path: Path) -> None:
    """A split has several results, a quantised matrix has a scale, and a local function has a body."""
    arrays = random_arrays("LSTM")
    quantised = np.clip(np.round(arrays.pop("R") * 50), -127, 127).astype(np.int8)
    arrays["halves"] = np.concatenate([arrays.pop("W"), arrays["B"][:, :, None].repeat(3, 2)[:, : 4 * H]], 1)
    nodes = [
        helper.make_node("Split", ["halves"], ["W", "unused"], axis=1, num_outputs=2),
        helper.make_node("DequantizeLinear", ["quantised", "scale"], ["R"]),
    ]
    arrays |= {"quantised": quantised, "scale": np.array(0.02, np.float32)}
    assert_equals_onnxruntime(save(tmp_path / "m.onnx", "LSTM", arrays, nodes, opset=18))

    model = onnx.load(save(tmp_path / "f.onnx", "GRU", random_arrays("GRU"), linear_before_reset=1))
    opset = [helper.make_opsetid("", 17)]
    names = ["x", "W", "R", "B"]
    function = helper.make_function("local", "Layer", names, ["y"], [model.graph.node[0]], opset)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("Layer", names, ["y"], domain="local"))
    onnx.save(model, tmp_path / "f.onnx")
    assert_equals_onnxruntime(tmp_path / "f.onnx")


def test_layouts_of_other_exporters(tmp_path: Path) -> None:
    """Initialisers that are also inputs, no names, old operator sets, two nodes with one name, and optimised files."""
    path = save(tmp_path / "m.onnx", "GRU", random_arrays("GRU"), opset=7)
    model = onnx.load(path)
    model.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in model.graph.initializer
    )
    model.graph.node[0].name = ""
    onnx.save(model, path)
    assert_equals_onnxruntime(path)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    assert_equals_onnxruntime(tmp_path / "optimised.onnx")
    model.graph.node.append(helper.make_node("GRU", ["x", "W", "R"], ["z"], hidden_size=H, activations=["Tanh"] * 2))
    model.graph.node[0].name = model.graph.node[1].name = "same"
    model.graph.node[1].ClearField("attribute")
    onnx.save(model, path)
    assert [*gg.from_onnx(path)] == ["same", "same_1"]


@pytest.mark.parametrize(("kind", "names"), [("LSTM", ["sigmoid", "TANH", "Tanh"]), ("RNN", ["Relu"])])
def test_activations_for_both_directions_in_any_case(kind: str, names: list[str], tmp_path: Path) -> None:
    arrays = random_arrays(kind, 2)
    assert_equals_onnxruntime(
        save(tmp_path / "m.onnx", kind, arrays, direction="bidirectional", activations=[*names, *names])
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_weights_keep_their_dtype(dtype: str, tmp_path: Path) -> None:
    arrays = random_arrays("LSTM", dtype=helper.tensor_dtype_to_np_dtype(getattr(TensorProto, DTYPES[dtype])))
    (layer,) = gg.from_onnx(save(tmp_path / "m.onnx", "LSTM", arrays, type_of_x=arrays["W"].dtype)).values()
    assert layer.weight_hh_l0.dtype == getattr(torch, dtype)
    assert torch.equal(layer.weight_hh_l0[:H].double(), torch.from_numpy(arrays["R"][0, :H].astype(np.float64)))


DTYPES = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float64": "DOUBLE"}


def test_files_without_an_equivalent_give_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    arrays = random_arrays("LSTM")

    def check(message: str) -> None:
        with pytest.raises(ExportError, match=f"^from_onnx: .*{message}"):
            gg.from_onnx(path)

    save(path, "LSTM", arrays | {"R": arrays["R"][..., :4]})
    check(r"input R of node node \(LSTM\) must have shape \(1, 20, 5\), got \(1, 20, 4\)")
    save(path, "LSTM", arrays, direction="bidirectional")
    check(r"input W of node node \(LSTM\) must have shape \(2, 20, 3\), got \(1, 20, 3\)")
    save(path, "LSTM", arrays, direction="sideways")
    with pytest.raises(ExportError, match=r"from_onnx: .* has direction 'sideways'; expected forward, reverse"):
        gg.from_onnx(path)
    save(path, "LSTM", arrays | {"B": arrays["B"].astype(np.int32)})
    check("must have floating-point weights, got int32 for input B")
    draw = helper.make_node("RandomNormal", [], ["W"], shape=[1, 20, 3])
    save(path, "LSTM", {name: arrays[name] for name in "RB"}, [draw])
    check("its input W is computed")
    unknown = helper.make_node("Unknown", ["w"], ["W"], domain="nowhere")
    save(path, "LSTM", {"w": arrays["W"]} | {name: arrays[name] for name in "RB"}, [unknown])
    check(r"input W of node node \(LSTM\) cannot be read")
    model = onnx.load(save(path, "LSTM", arrays))
    model.graph.node[0].input[1] = ""
    onnx.save(model, path)
    check("must have fixed weights, but it has no input")
    del model.graph.node[0].input[:]
    onnx.save(model, path)
    check("must have fixed weights, but it has no input")
    model = onnx.load(save(path, "LSTM", arrays))
    model.graph.node[0].domain = "elsewhere"
    onnx.save(model, path)
    check("has no RNN, GRU or LSTM node, only LSTM")
    content = save(path, "LSTM", arrays).read_bytes()
    for size in (0, 1, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        check("is not an ONNX model|has no RNN|cannot be read|must have")
    path.unlink()
    path.mkdir()
    check("cannot read .*: Is a directory")
