"""`torch.onnx.export(dynamo=True)` exports models with our layers, without further steps."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.export.errors import ExportError
from glassgate.export.onnx_verify import Session
from tests.export.cases import CELLS, drawn, layer_of_arrays
from tests.exporter import operators_read_once  # noqa: F401
from tests.openvino_core import core

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's exporter


class Branch(nn.Module):
    """A model that cannot be exported: its code depends on a value."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Tagger(nn.Module):
    """An embedding, a layer and a dense layer."""

    def __init__(self, layer: gg.Recurrent) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(11, layer.input_size), layer
        self.dense = nn.Linear(layer.output_size, 3)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Any:
        output, final = self.layer(self.embedding(tokens), lengths=lengths)
        return self.dense(output), final


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (gg.LSTM, {"bidirectional": True, "num_layers": 2}),
        (gg.Recurrent, {"cell": CELLS["custom"]}),
        (gg.Recurrent, {"cell": gg.cells.GatedDeltaNet(heads=5, key_size=2), "bidirectional": True}),
    ],
)
def test_a_model_with_lengths(kind: Any, options: dict[str, Any], tmp_path: Path) -> None:
    model = Tagger(drawn(kind(input_size=4, hidden_size=5, batch_first=True, **options))).eval()
    tokens, lengths = torch.randint(0, 11, (3, 7)), torch.tensor([7, 0, 4])
    N, L = torch.export.Dim("N", min=2), torch.export.Dim("L", min=2)
    shapes = {0: N, 1: L}, {0: N}
    if kind is gg.LSTM:
        program = torch.onnx.export(model, (tokens, lengths), dynamo=True, dynamic_shapes=shapes)
        program.save(tmp_path / "model.onnx")
    else:
        gg.to_onnx(model, tmp_path / "model.onnx", (tokens, lengths), dynamic_shapes=shapes)
    session = Session(tmp_path / "model.onnx")
    names = [given.name for given in session.inputs]
    for N_, L_ in ((3, 7), (4, 9)):
        tokens, lengths = torch.randint(0, 11, (N_, L_)), torch.randint(0, L_, (N_,))
        with torch.no_grad():
            output, final = model(tokens, lengths)
        results = list(session(**dict(zip(names, (tokens, lengths), strict=True))).values())
        for value, expected in zip(results, (output, *(final if isinstance(final, tuple) else (final,))), strict=True):
            torch.testing.assert_close(value, expected, rtol=0, atol=1e-5)


def test_a_model_without_operators_in_openvino(tmp_path: Path) -> None:
    """OpenVINO ignores the lengths of the operators, but not those of a loop."""
    model = Tagger(drawn(gg.GRU(4, 5, batch_first=True, bidirectional=True))).eval()
    given = torch.randint(0, 11, (3, 7)), torch.tensor([7, 0, 4])
    path = gg.to_onnx(model, tmp_path / "model.onnx", given, operators=False)
    results = core().compile_model(path, "CPU")([value.numpy() for value in given])
    with torch.no_grad():
        output, _ = model(*given)
    torch.testing.assert_close(torch.from_numpy(results[0]), output, rtol=0, atol=1e-5)


def test_a_model_that_cannot_be_exported_raises_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"^to_onnx: torch cannot export Branch: .*data-dependent.*") as error:
        gg.to_onnx(Branch(), tmp_path / "model.onnx", (torch.ones(3),))
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_names_and_further_examples(tmp_path: Path) -> None:
    """A further example reveals a graph that is specialised to the size of the first one."""

    class Repeated(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * int(x.shape[0])

    model, path = Repeated(), tmp_path / "model.onnx"
    options: dict[str, Any] = {"input_names": ["given"], "output_names": ["made"]}
    gg.to_onnx(model, path, (torch.ones(3),), dynamic_shapes=({0: "N"},), verify=[(torch.ones(5),)], **options)
    session = Session(path)
    assert ([each.name for each in session.inputs], session.outputs) == (["given"], ["made"])
    with pytest.raises(ExportError, match="ONNX Runtime cannot run the model"):
        gg.to_onnx(model, path, (torch.ones(3),), verify=[(torch.ones(5),)])


@pytest.mark.parametrize("name", ["GatedDeltaNet", "TLSTM"])
def test_cells_with_declared_axes(name: str, tmp_path: Path) -> None:
    """The kernels of these cells have an operator of their own."""
    model = Tagger(layer_of_arrays(name, bidirectional=True, num_layers=1 + (name == "GatedDeltaNet"))).eval()
    inputs = torch.randint(11, (5, 3)), torch.tensor([5, 2, 4])
    other = torch.randint(11, (7, 2)), torch.tensor([0, 7])
    sizes = {0: "L", 1: "N"}, {0: "N"}
    path = gg.to_onnx(model, tmp_path / "model.onnx", inputs, dynamic_shapes=sizes, verify=[other])
    names = [value.name for value in Session(path).inputs]
    outputs = Session(path)(**dict(zip(names, other, strict=True)))
    torch.testing.assert_close(next(iter(outputs.values())), model(*other)[0].detach(), rtol=1e-4, atol=1e-5)
