"""An unusable run raises an error with the reason and the remedy. Files are replaced completely or not at all."""

import json
import os
import re
from pathlib import Path

import pytest
import torch

from glassgate.tasks import runs, task_class_of_run
from glassgate.tasks.errors import RunError
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.task import Split
from tests.tasks.corpus import sentences

OPTIONS = TaggingOptions(hidden_size=4, embedding_size=4, epochs=1)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A saved model."""
    tagging = Tagging(OPTIONS)
    tagging.fit(Split(sentences(10)))
    tagging.save(tmp_path / "run")
    return tmp_path / "run"


def test_a_saved_model_predicts_the_same_in_another_process(run: Path, tmp_path: Path) -> None:
    moved = run.rename(tmp_path / "elsewhere")
    tagging = task_class_of_run(moved).load(moved)
    examples = sentences(5, seed=3)
    again = Tagging(OPTIONS)
    again.fit(Split(sentences(10)))
    assert tagging.predict(examples) == again.predict(examples)
    assert tagging.evaluate(examples) == again.evaluate(examples)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nowhere: no such run folder; `glassgate train TASK` makes one under runs/"):
        Tagging.load(tmp_path / "nowhere")


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"expected a run folder, got one without run\.json; give the folder that train"):
        Tagging.load(tmp_path)


def test_no_weights_yet(run: Path) -> None:
    (run / "model.safetensors").unlink()
    message = r"incomplete, it has no model\.safetensors yet; finish the training: glassgate train --resume .*run"
    with pytest.raises(RunError, match=message):
        Tagging.load(run)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_weights_cut_short(run: Path, length: int) -> None:
    file = run / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(RunError, match=r"model\.safetensors: damaged or cut short \(.*\); copy the folder again, or"):
        Tagging.load(run)


@pytest.mark.parametrize("content", ["", '{"format": 2', "[]", '{"task": "tagging"}', '{"format": 2}'])
def test_description_cut_short(run: Path, content: str) -> None:
    (run / "run.json").write_text(content)
    with pytest.raises(RunError, match=r"run\.json: damaged or cut short; copy the folder again, or train again"):
        Tagging.load(run)


@pytest.mark.parametrize(
    ("version", "age", "remedy"),
    [(1, "older", "train again"), (3, "newer", "upgrade: pip install --upgrade glassgate")],
)
def test_another_format(run: Path, version: int, age: str, remedy: str) -> None:
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(content | {"format": version}))
    message = rf"made by an? {age} version of glassgate \(format {version}, this one reads format 2\); {remedy}"
    with pytest.raises(RunError, match=message):
        Tagging.load(run)


def test_option_of_a_newer_version(run: Path) -> None:
    content = json.loads((run / "run.json").read_text())
    content["options"]["hidden_sice"] = 4
    (run / "run.json").write_text(json.dumps(content))
    with pytest.raises(
        RunError, match=r"run: made by another version .*: unknown option 'hidden_sice'; .*; upgrade: pip"
    ):
        Tagging.load(run)


def test_weights_of_another_model(run: Path) -> None:
    content = json.loads((run / "run.json").read_text())
    content["options"]["hidden_size"] = 5
    (run / "run.json").write_text(json.dumps(content))
    with pytest.raises(
        RunError,
        match=r"do not fit the options in run.json \(.*: expected .*, got \(.*\)\); copy the folder again",
    ):
        Tagging.load(run)


def test_another_task(run: Path) -> None:
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(content | {"task": "walking"}))
    with pytest.raises(RunError, match="expected a run of tagging, got one of walking"):
        Tagging.load(run)
    with pytest.raises(
        RunError, match=r"run: made by another .*: no task is called 'walking'; .*; upgrade: pip install"
    ):
        task_class_of_run(run)


def test_saved_model_cannot_be_resumed(run: Path) -> None:
    with pytest.raises(RunError, match="expected an unfinished run, got a model without a training"):
        Tagging.resume(run, Split(sentences(10)))


def test_folder_with_files_is_left_alone(run: Path) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.raises(RunError, match=re.escape(f"{run}: expected a new or empty folder for the run")):
        Tagging(OPTIONS).fit(Split(sentences(3)), run=run)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_nothing_is_unpickled(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("pickle was used")

    for name in ("load", "loads", "Unpickler", "dump", "dumps", "Pickler"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr(torch, "save", refuse)
    Tagging.load(run)
    Tagging(OPTIONS).fit(Split(sentences(3)), run=run.parent / "new")


def test_a_full_disk_keeps_the_last_good_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    for file in (tmp_path / "file", tmp_path / "run" / runs.RUN):
        runs.write(file, b"good")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for file, remedy in (
        (tmp_path / "file", "choose another path, or free disk space"),
        (tmp_path / "run" / runs.RUN, "files saved earlier are complete: .* --resume .*run"),
    ):
        message = rf"{file.name}: could not be written \(No space left on device\); {remedy}"
        with pytest.raises(RunError, match=message):
            runs.write(file, b"newer")
        assert file.read_bytes() == b"good"
    assert sorted(os.listdir(tmp_path)) == ["file", "run"]
