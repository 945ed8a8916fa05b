"""Reading and writing models of Neural Amp Modeler and RTNeural."""

import importlib
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.export.audio import Effect
from glassgate.export.errors import ExportError
from tests.compare import noise
from tests.export.cases import drawn


def nam_output(content: dict, x: Tensor) -> Tensor:
    """The output of a `.nam` file, computed from the definition of the format.

    Each layer has the matrix of [x, h], gates in the order i f g o, a bias, and the initial states; the linear layer
    comes last.
    """
    weights, at = torch.tensor(content["weights"]), 0
    H = content["config"]["hidden_size"]

    def take(*shape: int) -> Tensor:
        nonlocal at
        count = torch.Size(shape).numel()
        at += count
        return weights[at - count : at].view(shape)

    for _ in range(content["config"]["num_layers"]):
        W, b, h, c = take(4 * H, x.shape[1] + H), take(4 * H), take(H), take(H)
        outputs = []
        for step in x:
            i, f, g, o = (W @ torch.cat([step, h]) + b).chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        x = torch.stack(outputs)
    return x @ take(1, H).T + take(1)


def amp() -> Effect:
    """A model with two layers and learned initial states."""
    torch.manual_seed(0)
    return Effect(drawn(gg.LSTM(1, 6, 2, batch_first=True, learn_initial_state=True)), nn.Linear(6, 1))


@torch.no_grad()
def test_nam_files(tmp_path: Path) -> None:
    model, x = amp(), noise(3, 20, 1).float()
    path = gg.to_nam(model, tmp_path / "amp.nam", sample_rate=44_100)
    content = json.loads(path.read_text())
    assert content["config"] == {"input_size": 1, "hidden_size": 6, "num_layers": 2}
    torch.testing.assert_close(nam_output(content, x), model(x[None])[0], rtol=0, atol=1e-6)
    again = gg.from_nam(path)
    assert again.sample_rate == 44_100
    torch.testing.assert_close(again(x[None]), model(x[None]), rtol=0, atol=1e-6)


@pytest.mark.clients
@pytest.mark.filterwarnings("default")
@torch.no_grad()
def test_neural_amp_modeler_reads_and_writes_the_same_files(tmp_path: Path) -> None:
    models = importlib.import_module("nam.models")
    x = noise(3, 20, 1).float()
    theirs = models.LSTM(hidden_size=5, num_layers=2, sample_rate=48_000).eval()
    theirs._get_initial_state_burn_in = 10
    theirs.export(tmp_path, basename="theirs")
    ours, written = gg.from_nam(tmp_path / "theirs.nam"), json.loads((tmp_path / "theirs.nam").read_text())
    read = models.init_from_nam(written).eval()
    torch.testing.assert_close(ours(x[None])[..., 0], read(x[None, :, 0]), rtol=0, atol=1e-6)
    content = json.loads(gg.to_nam(amp(), tmp_path / "ours.nam").read_text())
    output_of_nam = models.init_from_nam(content).eval()(x[None, :, 0])
    torch.testing.assert_close(output_of_nam, amp()(x[None])[..., 0], rtol=0, atol=1e-6)


MODELS = {
    "lstm": lambda: nn.Sequential(gg.LSTM(2, 6, 2), nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 1, bias=False)),
    "gru": lambda: nn.Sequential(nn.Linear(2, 4), nn.ReLU(), gg.GRU(4, 5), nn.Linear(5, 1), nn.Sigmoid()),
}


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_rtneural_files(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Effect(*MODELS[name]()), noise(3, 20, 2).float()
    path = gg.to_rtneural(model, tmp_path / "model.json")
    again = gg.from_rtneural(path)
    torch.testing.assert_close(again(x[None])[0], model(x[:, None])[:, 0], rtol=0, atol=1e-6)


_READER = """
#include <RTNeural/RTNeural.h>
#include <cstdio>
int main() {
    std::ifstream file("model.json", std::ifstream::binary);
    auto model = RTNeural::json_parser::parseJson<float>(file);
    model->reset();
    float x[2];
    while (std::scanf("%f %f", &x[0], &x[1]) == 2) std::printf("%.9g\\n", model->forward(x));
}
"""


@pytest.mark.clients
@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_rtneural_itself_computes_the_same(name: str, tmp_path: Path) -> None:
    source = os.environ.get("RTNEURAL")
    if not source:
        pytest.skip("set RTNEURAL to a folder with the sources of RTNeural and Eigen")
    torch.manual_seed(0)
    model, x = Effect(*MODELS[name]()), noise(3, 20, 2).float()
    gg.to_rtneural(model, tmp_path / "model.json")
    (tmp_path / "reader.cpp").write_text(_READER)
    flags = [f"-I{source}", f"-I{source}/modules/Eigen", "-DRTNEURAL_USE_EIGEN=1", "-O1", "-std=c++17", "-w"]
    files = ["reader.cpp", f"{source}/RTNeural/RTNeural.cpp", "-o", "reader"]
    build = subprocess.run(["g++", *flags, *files], cwd=tmp_path)
    assert build.returncode == 0
    rows = "\n".join(f"{a!r} {b!r}" for a, b in x.tolist())
    done = subprocess.run(["./reader"], cwd=tmp_path, input=rows, capture_output=True, text=True, check=True)
    output_of_rtneural = torch.tensor([float(line) for line in done.stdout.split()])
    torch.testing.assert_close(output_of_rtneural, model(x[:, None])[:, 0, 0], rtol=0, atol=1e-5)


def test_errors(tmp_path: Path) -> None:
    path = tmp_path / "model.nam"
    with pytest.raises(ExportError, match=r"from_nam: cannot read .*: No such file or directory; check the path"):
        gg.from_nam(path)
    path.write_text("{")
    with pytest.raises(ExportError, match=r"from_rtneural: .* must be a JSON file"):
        gg.from_rtneural(path)
    path.write_text("[]")
    with pytest.raises(ExportError, match="must contain a JSON object, got list"):
        gg.from_nam(path)
    path.write_text('{"architecture": "WaveNet"}')
    with pytest.raises(ExportError, match="must have the architecture 'LSTM', got 'WaveNet'"):
        gg.from_nam(path)
    path.write_text('{"architecture": "LSTM"}')
    with pytest.raises(ExportError, match=r"from_nam: .* is damaged \(KeyError: 'config'\); copy it again"):
        gg.from_nam(path)
    content = json.loads(gg.to_nam(amp(), path).read_text())
    path.write_text(json.dumps(content | {"weights": [1.0]}))
    with pytest.raises(ExportError, match="must have 535 weights for its sizes, got 1"):
        gg.from_nam(path)
    path.write_text('{"in_shape": [null, 1], "layers": [{"type": "conv1d", "shape": [null, 1]}]}')
    with pytest.raises(ExportError, match="has a layer of type 'conv1d'; supported are lstm, gru, dense, activation"):
        gg.from_rtneural(path)
    path.write_text('{"in_shape": [1], "layers": [{"type": "activation", "activation": "elu", "shape": [1]}]}')
    with pytest.raises(ExportError, match="has the activation 'elu'; supported are tanh, relu, sigmoid"):
        gg.from_rtneural(path)
    path.write_text('{"in_shape": [1], "layers": [{"type": "lstm", "shape": [3], "weights": [[1.0]]}]}')
    with pytest.raises(ExportError, match="is not a model of RTNeural, or is damaged"):
        gg.from_rtneural(path)
    path.unlink()
    with pytest.raises(ExportError, match=r"to_nam: expected a Sequential of a gg.LSTM .* got GRU"):
        gg.to_nam(nn.Sequential(gg.GRU(1, 2), nn.Linear(2, 1)), path)
    with pytest.raises(ExportError, match=r"to_rtneural: expected a gg.LSTM or gg.GRU .* got LSTM.*bidirectional"):
        gg.to_rtneural(gg.LSTM(1, 2, bidirectional=True), path)
    with pytest.raises(ExportError, match="to_rtneural: expected a layer, got a module without one"):
        gg.to_rtneural(nn.Sequential(), path)
    with pytest.raises(ExportError, match=r"layer0.forward must start from zero states, got learned initial states"):
        gg.to_rtneural(amp(), path)
    assert list(tmp_path.iterdir()) == []
