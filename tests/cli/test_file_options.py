"""Commands that read a file for a run accept the options that describe files, as the messages advise."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from glassgate.cli import main
from glassgate.tasks import task_class

SMALL = {"epochs": 1, "hidden_size": 4, "embedding_size": 4, "linear": False}


def trained(task: str, content: str, folder: Path, **options: object) -> str:
    (folder / "train.csv").write_text(content)
    kind = task_class(task)
    values = {"data": f"{folder}/train.csv", **SMALL, **options}
    kind(kind.options_type.from_mapping(values)).fit(run=folder / "run")
    return f"{folder}/run"


def test_the_column_of_the_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"the film {k} was {word},{word}\n" for k, word in enumerate(["good", "bad"] * 20)]
    run = trained("classification", "Kommentar,Urteil\n" + "".join(rows), tmp_path)
    (tmp_path / "new.csv").write_text("x,y\n" + "".join(f"it was good {k},a bad one {k}\n" for k in range(3)))
    assert main(["predict", run, f"{tmp_path}/new.csv"]) == 2
    assert "name yours with --text-column" in capsys.readouterr().err
    assert main(["predict", run, f"{tmp_path}/new.csv", "--text-column=y"]) == 0
    assert capsys.readouterr().out.count("\n") == 3
    with pytest.raises(SystemExit, match="2"):
        main(["predict", run, f"{tmp_path}/new.csv", "--source-column=y"])
    assert "unknown option --source-column" in capsys.readouterr().err


def test_the_format_of_the_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    days = [date(2024, 1, 1) + timedelta(days=k) for k in range(60)]
    rows = "".join(f"{day},{k % 7}.5\n" for k, day in enumerate(days))
    run = trained("forecasting", f"day,y\n{rows}", tmp_path, horizon=2, look_back=8)
    (tmp_path / "new.csv").write_text("day,y\n" + "".join(f"{k:02}/02/2024,{k}.5\n" for k in range(1, 13)))
    assert main(["forecast", run, f"{tmp_path}/new.csv"]) == 2
    assert "--time-format" in capsys.readouterr().err
    assert main(["forecast", run, f"{tmp_path}/new.csv", "--time-format=%d/%m/%Y"]) == 0
    assert "13/02/2024" in capsys.readouterr().out
