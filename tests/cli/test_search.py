"""`glassgate search`: the index of a run, matches of a text and of a sequence, and messages about mistakes."""

import json
from pathlib import Path

import pytest
import torch

from glassgate.cli import main
from glassgate.tasks.runs import MODEL, Run
from tests.tasks.corpus import sentences, write_conllu

SMALL = ["--hidden-size=8", "--embedding-size=8", "--epochs=1", "--least-count=1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_conllu(folder / "train.conllu", sentences(40))
    write_conllu(folder / "dev.conllu", sentences(20, seed=1))
    words = ["train", "tagging", f"--data={folder}/train.conllu", f"--dev={folder}/dev.conllu"]
    assert main([*words, f"--run={folder / 'run'}", *SMALL]) == 0
    return folder / "run"


def test_search_finds_the_same_words_in_the_data(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["search", str(run), "--sequence-number", "3", "--steps", "2", "--units", "0,3,5", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["state"], result["units"]) == ("layer0.forward.h", [0, 3, 5])
    dev = sentences(20, seed=1)
    assert result["matches"][0]["distance"] < 0.02
    assert result["matches"][0]["text"] == [dev[2].tokens[1]]
    for match in result["matches"]:
        assert match["text"] == list(dev[match["sequence"]].tokens[match["start"] : match["stop"]])
    assert [match["distance"] for match in result["matches"]] == sorted(m["distance"] for m in result["matches"])
    text = " ".join(dev[2].tokens)
    assert main(["search", str(run), text, "--steps", "2", "--units", "0,3,5", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["matches"]
    assert again[0]["distance"] < 0.05
    assert again[0]["text"] == [dev[2].tokens[1]]
    assert main(["search", str(run), text, "--steps", "1-2", "--units", "1", "--state", "layer0.reverse.c"]) == 0
    out = capsys.readouterr().out
    assert f"[{' '.join(dev[2].tokens[:2])}]" in out.splitlines()[0]
    assert "layer0.reverse.c, units 1; " in out


def test_the_index_is_kept_until_the_weights_change(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", str(run), "--sequence-number", "1", "--steps", "1", "--units", "0"]
    assert main(words) == 0
    made = (run / "states.safetensors").stat().st_mtime_ns
    assert main(words) == 0
    assert (run / "states.safetensors").stat().st_mtime_ns == made
    weights = Run.open(run).load_model()
    before = (run / MODEL).read_bytes()
    Run.open(run).save_model({name: torch.zeros_like(value) for name, value in weights.items()})
    assert main(words) == 0
    assert (run / "states.safetensors").stat().st_mtime_ns != made
    (run / MODEL).write_bytes(before)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "1"], "expected a text or --sequence-number N, got both or neither"),
        (["--sequence-number", "1", "--steps", "3-2"], "--steps: expected FIRST-LAST, counted from 1, such as"),
        (["--sequence-number", "1", "--steps", "999"], "--steps: expected steps from 1 to "),
        (["--sequence-number", "99", "--steps", "1"], "--sequence-number: expected 1 to 20, got 99"),
        (["--sequence-number", "1", "--steps", "1", "--units", "a"], "--units: expected numbers from 0 to 7, sep"),
        (["--sequence-number", "1", "--steps", "1", "--state", "x"], "--state: expected one of layer0.forward.h, "),
    ],
)
def test_mistakes(run: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(run), *words]) == 2
    assert message in capsys.readouterr().err
