"""A run can be used from any folder, and a finished run has no checkpoint. A training without data lists its plan."""

import json
import shutil
from pathlib import Path

import pytest

from glassgate.cli import main
from tests.tasks.corpus import sentences, write_conllu

SMALL = ["--hidden-size=4", "--embedding-size=4", "--character-size=0", "--epochs=1", "--least-count=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a run that was trained on them with relative paths."""
    folder = tmp_path_factory.mktemp("started")
    write_conllu(folder / "train.conllu", sentences(40))
    write_conllu(folder / "dev.conllu", sentences(10, seed=1))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        assert main(["train", "tagging", "--data=train.conllu", "--dev=dev.conllu", "--run=run", *SMALL]) == 0
    return folder


def test_a_run_is_used_from_another_folder_and_after_it_is_moved(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder / "run", tmp_path / "moved")
    options = json.loads((tmp_path / "moved" / "run.json").read_text())["options"]
    assert (options["data"], options["dev"], options["test"]) == (
        f"{folder}/train.conllu",
        f"{folder}/dev.conllu",
        None,
    )
    for words in (
        ["report", "moved", "--terminal"],
        ["evaluate", "moved", f"{folder}/dev.conllu"],
        ["predict", "moved", f"{folder}/dev.conllu"],
        ["export", "moved", "--to=session"],
    ):
        assert main(words) == 0, capsys.readouterr().err
        assert capsys.readouterr().out
    assert (tmp_path / "moved" / "session.safetensors").exists()


def test_a_finished_run_has_no_checkpoint_and_is_not_extended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not (folder / "run" / "checkpoint.safetensors").exists()
    assert not [each.name for each in (folder / "run").iterdir() if each.name.startswith(".")]
    assert main(["train", "--resume", str(folder / "run")]) == 2
    assert "the run is finished and cannot be resumed; its scores are in metrics.json" in capsys.readouterr().err


def test_evaluate_notes_the_training_file(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copy(folder / "train.conllu", tmp_path / "copy.conllu")
    for file, is_noted in ((folder / "train.conllu", True), (copy, True), (folder / "dev.conllu", False)):
        assert main(["evaluate", str(folder / "run"), str(file)]) == 0
        note = f"note: {file} contains the data that the run was trained on, so the scores are higher than on new data"
        assert (note in capsys.readouterr().err) == is_noted


def test_evaluate_notes_a_file_with_training_and_other_examples(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both, new = tmp_path / "both.conllu", tmp_path / "new.conllu"
    new.write_text((folder / "dev.conllu").read_text().swapcase())
    both.write_text((folder / "train.conllu").read_text() + new.read_text())
    for file, note in ((both, f"note: about 40 of the 50 examples of {both} are in the training data, so"), (new, "")):
        assert main(["evaluate", str(folder / "run"), str(file)]) == 0
        err = capsys.readouterr().err
        assert note in err
        assert bool(note) == ("note: about" in err)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("tagging", "add --demo to train on Python's standard library (epochs 1, hidden size 96, format python"),
        ("forecasting", "add --demo to train on a generated series (epochs 6, hidden size 32, head quantiles"),
        ("language-model", "add --demo to train on Python's documentation (epochs 3,"),
        ("regression", "got none; give one with --data FILE\n"),
    ],
)
def test_a_training_without_data_lists_its_plan(
    task: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", task]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
