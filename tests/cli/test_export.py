"""`glassgate export`: a run as an ONNX model."""

import json
from pathlib import Path

import onnx
import pytest
import torch

from glassgate.cli import main
from glassgate.export.onnx_verify import Session
from glassgate.tasks import run_class

SMALL = ["--hidden-size=8", "--embedding-size=8", "--epochs=1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained classification run."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "table.csv").write_text("text,label\n" + "so fine,good\nso foul,bad\n" * 20)
    assert main(["train", "classification", f"--data={folder / 'table.csv'}", f"--run={folder / 'run'}", *SMALL]) == 0
    return folder / "run"


def test_an_exported_run_scores_as_the_run_does(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--to", "onnx"]) == 0
    assert "scores of labels" in capsys.readouterr().out
    path = run / "model.onnx"
    network = run_class(run).load(run).network.eval()
    units, lengths = torch.tensor([[2, 3, 4, 1], [3, 2, 0, 0]]), torch.tensor([4, 2])
    with torch.no_grad():
        expected = network({"units": units, "lengths": lengths}).labels
    (found,) = Session(path)(units=units, lengths=lengths).values()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    metadata = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(metadata["run"])["task"] == "classification"


def test_a_file_that_cannot_be_written(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--to", "onnx", "--output", str(run)]) == 2
    assert "expected the path of a file, got the folder" in capsys.readouterr().err
