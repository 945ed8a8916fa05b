"""`glassgate look`: the recognised format of a file, its first examples, and the command that trains on it."""

from pathlib import Path

import pytest

from glassgate.cli import main, readings
from glassgate.cli.readings import rank
from glassgate.tasks.forecasting.series import Table
from tests.tasks.data.test_columns import PUBLIC, SAID


def test_look_at_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.txt").write_text(PUBLIC)
    assert main(["look", f"{tmp_path}/train.txt", "--examples=1"]) == 0
    assert capsys.readouterr().out == (
        f"{tmp_path}/train.txt: {SAID}\n\n1.\n  EU\tB-ORG\n  rejects\tO\n  Mr\tB-PER\n  Lamb\tI-PER\n\n"
        f"train on it: glassgate train tagging --data {tmp_path}/train.txt\n"
    )
    assert main(["look", f"{tmp_path}/train.txt", "--label-column=2", "--text-column=3"]) == 0
    out = capsys.readouterr().out
    assert "  B-ORG\tEU\n" in out
    assert out.endswith("--label-column=2 --text-column=3\n")


def test_options_may_stand_before_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("kind,words\n" + "good,a fine day\nbad,a foul day\n" * 9)
    file = f"{tmp_path}/a.csv"
    outputs = []
    for words in (
        ["--label-column", "kind", file, "--examples", "1", "--no-linear"],
        ["--no-linear", "--examples", "1", "--label-column", "kind", file],
    ):
        assert main(["look", *words]) == 0
        outputs.append(capsys.readouterr().out.partition("\ntrain on it: ")[0])
    assert outputs[0] == outputs[1]
    assert "labels in 'kind'" in outputs[0]
    for words, said in (
        (["--frob", "3", file], "unknown option --frob"),
        (["--horizon"], "--horizon: expected one arg"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["look", *words])
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "task"),
    [
        ("a.csv", "text,label\nfine,good\nfoul,bad\n", "classification"),
        ("a.tsv", "text\tlabel\nfine\tgood\nfoul\tbad\n", "classification"),
        ("a.tsv", "fine\tADJ\nday\tNOUN\n", "tagging"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["X", "Y"]}\n', "tagging"),
        ("a.jsonl", '{"text": "a", "label": "X"}\n{"text": "b", "label": "Y"}\n', "classification"),
        ("a.txt", "salt and pepper\n", "language-model"),
        ("a.odd", "salt and pepper\n", "language-model"),
        ("a.py", "x = 1\n", "tagging"),
        ("a.txt", "".join(f"word {n}\tWort {n}\n" for n in range(40)), "translation"),
    ],
)
def test_the_task_is_found_out(
    name: str, content: str, task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert rank(str(path))[0].task == task
    assert main(["look", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"train on it: glassgate train {task} --data {path}\n")


def test_look_at_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", f"{tmp_path}/none.csv"]) == 2
    assert "none.csv: no such file" in capsys.readouterr().err
    assert main(["look", f"{tmp_path}/none.odd"]) == 2


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
def test_the_table_of_series_is_read_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"2024-01-{day:02}", day % 7) for day in range(1, 29)]
    lines = {
        "a.csv": "day,y\n" + "".join(f"{day},{y}\n" for day, y in rows),
        "a.jsonl": "".join(f'{{"day": "{day}", "y": {y}}}\n' for day, y in rows),
        "a.txt": "".join(f"{day} {y}\n" for day, y in rows),
    }
    (tmp_path / name).write_text(lines[name])
    built: list[str] = []
    monkeypatch.setattr(readings, "Table", lambda path: built.append(path) or Table(path))
    assert rank(f"{tmp_path}/{name}")[0].task == "forecasting"
    assert len(built) <= 1
