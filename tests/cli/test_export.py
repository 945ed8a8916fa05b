"""`glassgate export`: a run as an ONNX model, and the program of the page about deployment that uses it."""

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import torch

from glassgate.cli import main
from glassgate.tasks import task_class
from glassgate.tasks.data.tagged import Tagged
from tests.test_house import ROOT

TAGGED = [
    Tagged(("play", "some", "jazz"), ("O", "O", "B-genre")),
    Tagged(("stop", "new", "wave", "now"), ("O", "B-genre", "I-genre", "O")),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagging run with characters, valid transitions and a CRF, whose random weights give several labels."""
    folder = tmp_path_factory.mktemp("tagging") / "run"
    kind = task_class("tagging")
    task = kind(kind.options_type.from_mapping({"hidden_size": 6, "character_size": 4, "head": "crf"}))
    task.vocabularies = task.collect(TAGGED)
    task.network = task.build()
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in task.network.parameters():
            parameter.uniform_(-1, 1)
    task.save(folder)
    return folder


def program(title: str) -> str:
    """The first indented block of the page after a title."""
    page = (ROOT / "docs/deployment.md").read_text("utf-8")
    lines = page.split(f"## {title}\n")[1].split("\n## ")[0].splitlines()
    code = [line[4:] for line in lines if line.startswith("    ") or not line]
    return "\n".join(code).strip()


@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_the_program_of_the_page_prints_what_predict_prints(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run), "--to", "onnx"]) == 0
    assert "takes units (N, L), lengths (N), characters (N, L, W); returns labels" in capsys.readouterr().out
    metadata = {entry.key: entry.value for entry in onnx.load(run / "model.onnx").metadata_props}
    assert json.loads(metadata["run"])["task"] == "tagging"
    sentences = "play new jazz\nstop some unheard wave , now\nwave\n"
    (tmp_path / "text.txt").write_text(sentences)
    assert main(["predict", str(run), str(tmp_path / "text.txt"), "--json"]) == 0
    expected = [
        [token["label"] for token in json.loads(line)["tokens"]] for line in capsys.readouterr().out.splitlines()
    ]
    assert len({label for labels in expected for label in labels}) > 1
    code = program("A run without Glassgate")
    assert len(code.splitlines()) <= 20
    assert "glassgate" not in code
    command = [sys.executable, "-c", code, str(run / "model.onnx")]
    printed = subprocess.run(command, input=sentences, capture_output=True, text=True, check=True).stdout
    assert [line.split() for line in printed.splitlines()] == expected


def test_a_file_that_cannot_be_written(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--to", "onnx", "--output", str(run)]) == 2
    assert "--output: expected the path of a file, got the folder" in capsys.readouterr().err
    missing = tmp_path / "missing" / "model.onnx"
    assert main(["export", str(run), "--to", "onnx", f"--output={missing}"]) == 2
    assert "missing: No such file or directory; create the folder, or choose another path" in capsys.readouterr().err
    assert main(["export", str(run), "--to", "onnx", "--weight-precision=int8"]) == 2
    assert "--to onnx writes float32, got --weight-precision int8" in capsys.readouterr().err


def test_a_missing_package_leaves_no_file(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", str(run), "--to", "onnx", f"--output={tmp_path / 'model.onnx'}"]) == 2
    assert "the package onnx is not installed; install it with: pip install" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
