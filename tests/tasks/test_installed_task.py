"""The task of docs/add-a-task.md, installed as the wheel of another package, works like a built-in one."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from glassgate.cli import main
from glassgate.tasks import TASKS, installed_tasks, task_class
from glassgate.tasks.errors import OptionError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/add-a-task.md").read_text("utf-8")
REVIEWS = "text,label\n" + "".join(f"{'good' if k % 2 else 'bad'} film {k},{k % 2 + 1}\n" for k in range(40))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel of the page's package is installed."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    options, network, task, _, view, onnx = blocks("python")
    (source / "rating").mkdir()
    (source / "pyproject.toml").write_text(*blocks("toml"))
    files = {"__init__": "", "task": options + network + task, "view": view, "onnx": onnx}
    for name, text in files.items():
        (source / "rating" / f"{name}.py").write_text(text)
    quiet = ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    for words in (["wheel", "--no-build-isolation", "--wheel-dir", source, source], ["install", "--target", site]):
        wheels = [*source.glob("*.whl")]
        subprocess.run([sys.executable, "-m", "pip", *words[:1], *quiet, *words[1:], *wheels], check=True)
    return site


def test_a_task_of_another_package(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(tmp_path)
    assert list(installed_tasks()) == [*TASKS, "rating"]
    assert main(["--help"]) == 0
    assert "forecasting, rating\n" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert re.search("^  rating +predict the rating of a text$", capsys.readouterr().out, re.MULTILINE)
    Path("reviews.csv").write_text(REVIEWS)
    sizes = ["--hidden-size", "4", "--embedding-size", "4", "--epochs", "2", "--threads", "1"]
    assert main(["train", "rating", "--data", "reviews.csv", "--run", "run", *sizes]) == 0
    assert json.loads(Path("run/run.json").read_text())["task"] == "rating"
    assert main(["evaluate", "run", "reviews.csv"]) == 0
    capsys.readouterr()
    assert main(["predict", "run", "reviews.csv"]) == 0
    assert len(re.findall(r"^-?\d+\.\d\d$", capsys.readouterr().out, re.MULTILINE)) == 40
    assert main(["report", "run", "a good film"]) == 0
    assert "good" in Path("report.html").read_text("utf-8")
    assert main(["report", "run", "-o", "dev.html"]) == 0
    for target in ("session", "onnx"):
        assert main(["export", "run", "--to", target]) == 0
    assert {"model.onnx", "session.safetensors"} <= {path.name for path in Path("run").iterdir()}
    capsys.readouterr()
    assert main(["export", "run", "--to", "c"]) == 2
    assert "--to c does not support runs of rating" in capsys.readouterr().err
    assert main(["report", "run", "a good film", "--live"]) == 2
    assert "--live: a run of rating has no interactive page" in capsys.readouterr().err


def test_a_run_of_a_package_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reading = {"options": {}, "width": 0}
    run = {"format": 2, "task": "rating", "options": {}, "vocabularies": {}, "fitted": {}, "reading": reading}
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert main(["predict", str(tmp_path), "reviews.csv"]) == 2
    assert "no task is called 'rating'; there are tagging" in capsys.readouterr().err


def test_two_tasks_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    information = tmp_path / "other-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[glassgate.tasks]\ntagging = other:Tagging\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match=r"two tasks are called 'tagging': glassgate.* and other:Tagging; uninstall"):
        installed_tasks()
    assert task_class("tagging").__name__ == "Tagging"
