"""Language models, blanks and classifiers from the command line: train, evaluate, predict, generate, fill."""

import io
import shlex
from pathlib import Path

import pytest

from glassgate.cli import main

SMALL = ["--hidden-size=8", "--embedding-size=8", "--epochs=2", "--learning-rate=0.05"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, a table, and a trained run of each task."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "text.txt").write_text("salt and pepper, bread and butter.\n" * 40)
    (folder / "table.csv").write_text("text,label\n" + "so fine,good\nso foul,bad\n" * 20)
    for task, file in (("language-model", "text.txt"), ("fill-blanks", "text.txt"), ("classification", "table.csv")):
        assert main(["train", task, f"--data={folder / file}", f"--run={folder / task}", *SMALL]) == 0
    return folder


@pytest.mark.parametrize(
    ("task", "file", "words"),
    [
        ("language-model", "text.txt", ["generate", "evaluate"]),
        ("fill-blanks", "text.txt", ["fill", "evaluate"]),
        ("classification", "table.csv", ["evaluate", "predict"]),
    ],
)
def test_what_to_try_next_can_be_tried(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str, file: str, words: list[str]
) -> None:
    run = tmp_path / "a run"
    assert main(["train", task, f"--data={folder / file}", f"--dev={folder / file}", f"--run={run}", *SMALL]) == 0
    commands = [shlex.split(line) for line in capsys.readouterr().out.split("try next:\n")[1].splitlines()]
    assert [command[:2] for command in commands] == [["glassgate", word] for word in words]
    for command in commands:
        assert main(command[1:]) == 0
        assert capsys.readouterr().out


def test_generate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", str(folder / "language-model"), "--prompt=salt", "--length=20", "--seed=1", "--top-k=5"]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert first.startswith("salt")
    assert len(first) == len("salt") + 20 + 1
    assert main([*words, "--top-p=0.9", "--temperature=0.5"]) == 0
    capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr().out == first


def test_fill(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", str(folder / "fill-blanks"), "salt __ pepper 我", "--n-best=3", "--longest-blank=2"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) == 3
    assert all(line.split("%")[0].strip().replace(".", "").isdecimal() for line in lines)
    assert "unknown tokens, not in the model's training data: '我'" in captured.err
    assert main(["fill", str(folder / "fill-blanks"), "salt __ pepper, __", "--length=1"]) == 0
    assert "blank 2" in capsys.readouterr().out


def test_wrong_run_and_wrong_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(folder / "fill-blanks")]) == 2
    assert (
        "expected a run of language-model, got one of fill-blanks; train one: glassgate train"
        in capsys.readouterr().err
    )
    assert main(["fill", str(folder / "language-model"), "a __"]) == 2
    assert "expected a run of fill-blanks, got one of language-model" in capsys.readouterr().err
    assert main(["fill", str(folder / "fill-blanks"), "salt"]) == 2
    assert "glassgate fill: text: expected a blank" in capsys.readouterr().err


def test_evaluate_and_predict(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["evaluate", str(folder / "language-model"), str(folder / "text.txt")]) == 0
    out = capsys.readouterr().out
    assert "perplexity" in out
    assert "%" in out
    assert main(["predict", str(folder / "language-model"), str(folder / "text.txt")]) == 0
    assert capsys.readouterr().out.startswith("s\t")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"salt a__ pepper\n")))
    assert main(["predict", str(folder / "fill-blanks"), "-"]) == 0
    assert capsys.readouterr().out.startswith("salt a")
    report = folder / "report"
    words = ["evaluate", str(folder / "classification"), str(folder / "table.csv"), "--report", str(report)]
    assert main(words) == 0
    assert (report / "confusion.json").exists()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"so fine\n")))
    assert main(["predict", str(folder / "classification"), "-"]) == 0
    assert capsys.readouterr().out.split("\t")[0].split("\n")[-1] in ("good", "bad")


def test_two_directions_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "language-model", f"--data={folder}/text.txt", "--bidirectional"]) == 2
    assert "has seen the token that is to be predicted" in capsys.readouterr().err
