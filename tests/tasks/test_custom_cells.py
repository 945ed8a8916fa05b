"""Custom cells in tasks: from a file or an object; run folders contain their equations and need no code."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import glassgate as gg
from glassgate.cli import main
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.errors import OptionError
from glassgate.tasks.progress import Interrupted
from glassgate.tasks.runs import MODEL
from glassgate.tasks.tagging import Tagging
from tests.tasks.corpus import sentences, write_conllu
from tests.tasks.test_every_task import SPLITS
from tests.tasks.training.test_resume import SPLIT, CtrlC

SOURCE = """
import torch
import glassgate as gg

class Leaky(gg.Cell):
    gates = ("f", "n")
    state = ("y", "m")
    parameters = {"gain": gg.Parameter(1.5, per_gate=True), "leak": gg.Parameter(0.25)}

    def __init__(self, heads=2, rate=0.125):
        self.heads, self.rate = heads, rate

    def step(self, a, s, p):
        f, n = torch.sigmoid(p.gain.f * a.f), torch.tanh(p.gain.n * a.n)
        m = f * s.m + (1 - f) * a.update(n)
        return m - self.rate * p.leak * s.y, m

class Branching(gg.Cell):
    gates = ("n",)

    def step(self, a, s):
        return torch.tanh(a.n) if a.n.sum() > 0 else a.n
"""
SMALL = {"hidden_size": 4, "embedding_size": 4, "epochs": 2, "batch_size": 4, "threads": 1}


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "mine.py").write_text(SOURCE)
    with gg.engine("reference"):
        yield tmp_path / "mine.py"


@pytest.mark.parametrize("name", TASKS)
def test_each_task_trains_one_and_loads_its_run_without_the_file(name: str, file: Path, tmp_path: Path) -> None:
    kind = task_class(name)
    options = kind.options_type.from_mapping(SMALL | {"epochs": 1, "cell": f"{file}:Leaky"})
    task = kind(options)
    task.fit(SPLITS[name], run=tmp_path / "run")
    file.unlink()
    shutil.move(tmp_path / "run", tmp_path / "moved")
    loaded = kind.load(tmp_path / "moved")
    layer = next(module for module in loaded.network.modules() if isinstance(module, gg.Recurrent))
    assert (type(layer.cell).__name__, layer.cell.heads) == ("Leaky", 2)
    assert layer.cell.parameters == {"gain": gg.Parameter(1.5, per_gate=True), "leak": gg.Parameter(0.25)}
    examples = SPLITS[name].train
    assert loaded.predict(examples) == task.predict(examples)
    assert type(loaded.build().encoder.cell).__name__ == "Leaky"
    assert set(loaded.build().encoder.leak_l0.tolist()) == {0.25}


@pytest.mark.parametrize("presses", [1, 13])
def test_resumes_bit_for_bit_without_the_file(file: Path, tmp_path: Path, presses: int) -> None:
    options = Tagging.options_type.from_mapping(SMALL | {"save_every": 0.0, "cell": f"{file}:Leaky"})
    Tagging(options).fit(SPLIT, run=tmp_path / "whole")
    with pytest.raises(Interrupted):
        Tagging(options).fit(SPLIT, run=tmp_path / "run", progress=CtrlC(presses))
    file.write_text("raise RuntimeError('this file must not run')")
    Tagging.resume(tmp_path / "run", SPLIT)
    whole, run = load_file(tmp_path / "whole" / MODEL), load_file(tmp_path / "run" / MODEL)
    assert all(torch.equal(whole[name], run[name]) for name in whole)


def test_from_the_command_line_to_the_report(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_conllu(tmp_path / "train.conllu", sentences(12))
    monkeypatch.chdir(tmp_path)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    words += [f"--data={data}", f"--dev={data}"]
    assert main(["train", "tagging", "--cell=mine.py:Leaky(heads=4)", "--run=run", *words]) == 0
    file.unlink()
    capsys.readouterr()
    for command in (
        ["predict", "run", str(data)],
        ["evaluate", "run", str(data)],
        ["report", "run", "-o", "page.html"],
    ):
        assert main(command) == 0, command
    page = (tmp_path / "page.html").read_text()
    assert "One step of Leaky" in page
    for gate in ("f", "n"):
        assert f'data-name="{gate}"' in page


def test_objects_and_print_config(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Tagging.options_type(cell=gg.cells.ClippedLSTM(cell_clip=0.5))
    again = Tagging.options_type.from_mapping(json.loads(json.dumps(options.to_mapping())))
    assert gg.cell_to_json(again.cell) == gg.cell_to_json(gg.cells.ClippedLSTM(cell_clip=0.5))
    assert main(["train", "tagging", f"--cell={file}:Leaky", "--print-config"]) == 0
    assert f"cell: {file}:Leaky  #" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cell", "options", "message"),
    [
        ("{}:None_", {}, "None_ must be a subclass of glassgate.Cell, got nothing of that name"),
        ("{}x.py:Leaky", {}, "x.py: no such file; give the Python file that defines the cell"),
        ("{}:Leaky(head=3)", {}, "the cell cannot be made: .*head'; give the arguments as in .*py:Leaky"),
        ("{}:Leaky(3)", {}, r"expected keyword arguments, such as gla\(heads=4\), got .*py:Leaky\(3\)"),
        ("{}:Branching", {}, "cell: expected a name, FILE.py:Class or a gg.Cell that can be stored: cell Branching"),
        ("{}:Leaky", {"hidden_size": 5}, "hidden_size: expected a multiple of the 2 heads of Leaky, got 5"),
    ],
)
def test_invalid_cells(file: Path, cell: str, options: dict[str, Any], message: str) -> None:
    made = Tagging.options_type.from_mapping(SMALL | {"cell": cell.format(file)} | options)
    with pytest.raises(OptionError, match=message):
        Tagging(made).fit(SPLIT)


def test_a_run_folder_executes_no_file(file: Path, tmp_path: Path) -> None:
    task = Tagging(Tagging.options_type.from_mapping(SMALL | {"epochs": 1, "cell": "lstm"}))
    task.fit(SPLIT, run=tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(
        (tmp_path / "run" / "run.json").read_text().replace('"cell": "lstm"', f'"cell": "{file}:Leaky"')
    )
    file.write_text("raise SystemExit('executed')")
    with pytest.raises(OptionError, match=r"cell: expected the equations of .*mine\.py:Leaky, got only its name"):
        Tagging.load(tmp_path / "run")
