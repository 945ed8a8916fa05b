"""Forecasts of tables in files and in memory: the commands, frames, notes, and tables that are refused."""

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glassgate.cli import main
from glassgate.tasks.data import store
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.forecasting.series import series_of
from glassgate.tasks.forecasting.series.frequency import MONTH, Frequency
from glassgate.tasks.forecasting.task import Forecasting, ForecastingOptions
from glassgate.tasks.runs import MODEL
from tests.tasks.forecasting.test_forecasting import HOUR, SMALL, made, trained
from tests.tasks.training.test_resume import same_files

HOURS = [f"2024-01-01 {hour:02}:00" for hour in range(15)]


WORDS = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write a long table of two series, with a covariate known for four more steps."""
    rows = []
    for name, seed in (("a", 0), ("b", 1)):
        series = made(name, seed=seed)
        for k, time in enumerate(series.times(0, 84)):
            value = f"{series.values[k : k + 1][0]:g}" if k < 80 else ""
            rows.append(f"{name},{HOUR.text(time)},{value},{k % 6}\n")
    path = tmp_path / "table.csv"
    path.write_text("unique_id,ds,y,phase\n" + "".join(rows))
    return path


@pytest.fixture(scope="module")
def wave(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a wide table of one series, wave.csv, and train a run on it."""
    folder, series = tmp_path_factory.mktemp("wave"), made()
    rows = zip(series.times(0, 80), series.values[:], strict=True)
    (folder / "wave.csv").write_text("date,load\n" + "".join(f"{HOUR.text(a)},{b:g}\n" for a, b in rows))
    task = Forecasting(ForecastingOptions.from_mapping(SMALL | {"data": str(folder / "wave.csv")}))
    task.fit(run=folder / "run")
    return folder


@pytest.mark.usefixtures("pictures")
def test_the_commands(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    words = [*WORDS, "--known=phase", "--head=gaussian", "--model=recursive", "--calendar"]
    assert main(["train", "forecasting", f"--data={table}", *words, f"--run={run}"]) == 0
    assert "seasonal naive" in capsys.readouterr().out
    assert (tmp_path / "run" / "forecasts.png").exists() == bool(pytest.importorskip("matplotlib"))
    out, picture = tmp_path / "out.csv", tmp_path / "fan.svg"
    assert main(["forecast", run, "-o", str(out), "--picture", str(picture)]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [*rows[0]] == ["unique_id", "ds", "forecast", "q0.1", "q0.5", "q0.9"]
    assert [(row["unique_id"], row["ds"]) for row in rows[3:5]] == [
        ("a", "2024-01-04 11:00:00"),
        ("b", "2024-01-04 08:00:00"),
    ]
    assert "<svg" in picture.read_text()
    capsys.readouterr()
    assert main(["predict", run, str(table)]) == 0
    assert capsys.readouterr().out.splitlines()[0].split("\t") == list(rows[0].values())
    assert main(["evaluate", run, str(table), "--json"]) == 0
    assert {"mase", "coverage", "naive_mse", "data_mae", "seasonal_smape"} <= json.loads(capsys.readouterr().out).keys()
    assert main(["evaluate", run, str(table)]) == 0
    assert re.search(
        r"in the units of the data, and in percent\n +mae +rmse +mape +smape\nmodel ", capsys.readouterr().out
    )
    assert main(["forecast", run, str(table), "--picture", "fan.jpg"]) == 2
    assert "expected a file that ends in .svg or .png, got fan.jpg" in capsys.readouterr().err


def test_look_recognises_a_table_of_series(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    series = made(count=200)
    rows = zip(series.times(0, 200), series.values[:], strict=True)
    (tmp_path / "t.csv").write_text("date,load\n" + "".join(f"{HOUR.text(a)},{b:g}\n" for a, b in rows))
    assert main(["look", str(tmp_path / "t.csv")]) == 0
    out = capsys.readouterr().out
    assert "load\t200 steps of 1 hour, 2024-01-01 00:00:00 to 2024-01-09 07:00:00" in out
    assert f"glassgate train forecasting --data {tmp_path / 't.csv'}" in out


def test_frames_go_in_and_out(table: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(table, parse_dates=["ds"])
    task = Forecasting(ForecastingOptions.from_mapping(SMALL | {"known": "phase"}))
    task.fit(frame)
    out = task.forecast(frame)
    assert out.columns.tolist() == ["unique_id", "ds", "forecast"]
    assert (out.groupby("unique_id").size() == 4).all()
    ahead = frame[frame.y.isna()].reset_index(drop=True)
    assert (out.ds == ahead.ds).all()
    assert (out.unique_id == ahead.unique_id).all()


def test_frames_of_neuralforecast_and_darts_come_back_in_their_own_form() -> None:
    pandas = pytest.importorskip("pandas")
    hours = pandas.date_range("2024-01-01", periods=80, freq="h")
    values = {name: np.asarray(made(name, seed=seed).values[:]) for seed, name in enumerate(("load", "oil"))}
    wide = pandas.DataFrame(values, index=hours)  # the form of `TimeSeries.to_dataframe` in darts
    long = pandas.concat(
        pandas.DataFrame({"unique_id": name, "ds": hours, "y": each}) for name, each in values.items()
    )  # the form that `NeuralForecast.fit` accepts
    task = Forecasting(ForecastingOptions.from_mapping(SMALL | {"head": "quantiles"}))
    task.fit(wide)
    out = task.forecast(wide)
    assert out.columns.tolist() == [
        *("load", "load_q0.100", "load_q0.500", "load_q0.900"),
        *("oil", "oil_q0.100", "oil_q0.500", "oil_q0.900"),
    ]
    assert (out.index == pandas.date_range(hours[-1], periods=5, freq="h")[1:]).all()
    again = task.forecast(wide.rename_axis("time").reset_index())
    assert (again.set_index("time") == out).all(axis=None)

    class TimeSeries:
        """A stand-in for the class of darts."""

        def to_dataframe(self):
            return wide

    assert task.forecast(TimeSeries()).equals(out)
    task = Forecasting(ForecastingOptions.from_mapping(SMALL))
    task.fit({"train": long, "dev": long, "test": long})
    out = task.forecast(long)
    assert out.columns.tolist() == ["unique_id", "ds", "forecast"]
    assert out.unique_id.tolist() == ["load"] * 4 + ["oil"] * 4
    assert (out.ds[:4] == out.ds[4:].to_numpy()).all()


def test_a_file_on_disk_trains_the_same(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSGATE_CACHE", str(tmp_path))
    options = ForecastingOptions.from_mapping(SMALL | {"data": str(table), "known": "phase", "calendar": True})
    for name, large in (("memory", 2**26), ("disk", 10)):
        monkeypatch.setattr(store, "LARGE", large)
        Forecasting(options).fit(run=tmp_path / name)
    assert same_files(tmp_path / "memory", tmp_path / "disk", MODEL)
    again = Forecasting.load(tmp_path / "disk")
    assert again.encoded(again.read(table))[0]["values"].tobytes() != b""


def test_impossible_forecasts_are_refused_before_writing(table: Path, tmp_path: Path) -> None:
    def fit(**options: Any) -> None:
        options = SMALL | {"data": str(table), "known": "phase"} | options
        Forecasting(ForecastingOptions.from_mapping(options)).fit(run=tmp_path / "run")

    with pytest.raises(
        OptionError, match=r"horizon: expected at least 74 training steps .*, 66 dev steps and 66 test "
    ):
        fit(horizon=66, dev_steps=0)
    with pytest.raises(DataError, match=r"table\.csv:2: series 'a': expected 1008 steps or more .* got 80; give a"):
        fit(horizon=1000, dev_steps=1000)
    with pytest.raises(OptionError, match="look_back: expected a multiple of the segment, 4, got 9"):
        fit(model="segments", look_back=9)
    with pytest.raises(OptionError, match="past: the recursive model needs covariates at each step"):
        fit(model="recursive", known=None, past="phase")
    with pytest.raises(OptionError, match="bidirectional: expected one direction for the segments model"):
        fit(model="segments", bidirectional=True)
    with pytest.raises(OptionError, match=r"quantiles: expected numbers between 0 and 1, .*, got '0\.5,high'"):
        fit(quantiles="0.5,high")
    with pytest.raises(DataError, match="season: expected two seasons of 40 steps in the training part, got 56 steps"):
        fit(season=40)
    task = Forecasting(ForecastingOptions.from_mapping(SMALL | {"head": "negative-binomial"}))
    constant = replace(made("flat"), values=series_of(np.full(80, 3.0)).values)
    for bad, message in (
        (constant, "series 'flat': the training part is constant, 3 at all 56 steps; nothing can be learned from it"),
        (replace(made(), values=series_of(made().values[:] - 0.5).values), "expects counts, 0, 1, 2 .*, got "),
    ):
        with pytest.raises(DataError, match=message):
            task.fit(task.split([bad]), run=tmp_path / "run")
    fitted = trained([made()])
    monthly = replace(made(), frequency=Frequency(MONTH))
    with pytest.raises(DataError, match="expected steps of 1 hour, as in training, got 1 month; bring them to that"):
        fitted.predict([monthly])
    with pytest.raises(DataError, match=r"expected 8 steps or more for a look-back of 8 .*, got 7"):
        fitted.predict([made(count=7)])
    rare = trained([made()], look_back=4, season=12)
    with pytest.raises(
        DataError, match=r"expected 16 steps or more for .* the seasonal naive forecast reads a season of 12 steps"
    ):
        rare.read(pa.table({"ds": HOURS, "y": [1.0] * 15}))
    assert not (tmp_path / "run").exists()


def swapped(rows: list[str]) -> list[str]:
    return [*rows[:4], rows[5], rows[4], *rows[6:]]


def valued(value: str, *places: int) -> Callable[[list[str]], list[str]]:
    """Return rows with another value at these positions, or at all positions if none are given."""

    def change(rows: list[str]) -> list[str]:
        which = {place % len(rows) for place in places or range(len(rows))}
        return [f"{row.split(',')[0]},{value}" if k in which else row for k, row in enumerate(rows)]

    return change


@pytest.mark.parametrize(
    ("change", "training", "forecast"),
    [
        (lambda rows: rows[:7], r"expected 12 steps or more .* shorter --horizon", r"expected 8 steps .*, got 7; give"),
        (swapped, r":7: the time stamp .* 04:00:00 comes after .* 05:00:00 in line 6; sort the rows", None),
        (valued("3"), r":2: series 'load': the training part is constant, 3 at all 56 steps; nothing can be", ""),
        (valued("warm", 8), r":10: column 'load': expected a number, got 'warm'; correct it", None),
        (valued("NaN", 0), r":2: column 'load' lacks a value; fill it in", None),
        (valued("NaN", -1), r":81: column 'load' lacks a value; fill it in", None),
        (valued("NaN", -8), r":74: column 'load' lacks a value; fill it in", None),
    ],
    ids=["horizon", "order", "constant", "text", "first", "last", "edge"],
)
def test_an_invalid_table_raises_one_sentence_and_writes_nothing(
    change: Callable[[list[str]], list[str]],
    training: str,
    forecast: str | None,
    wave: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither training nor forecasting writes a file, except that a constant series can be forecast."""
    first, *rows = (wave / "wave.csv").read_text().splitlines()
    bad, out, run = tmp_path / "bad.csv", tmp_path / "out.csv", tmp_path / "run"
    bad.write_text("\n".join([first, *change(rows)]) + "\n")
    assert main(["train", "forecasting", f"--data={bad}", *WORDS, f"--run={run}"]) == 2
    assert re.search(f"^glassgate train.*{training}", capsys.readouterr().err.splitlines()[-1])
    assert main(["forecast", str(wave / "run"), str(bad), "-o", str(out)]) == (0 if forecast == "" else 2)
    assert re.search(training if forecast is None else forecast, capsys.readouterr().err)
    assert not run.exists()
    assert out.exists() == (forecast == "")


def test_a_table_may_begin_with_a_missing_text(tmp_path: Path) -> None:
    rows = [{"place": None if k == 0 else "x", "day": f"2024-01-{k + 1:02}", "load": k % 3} for k in range(30)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(DataError, match="row 2: column 'place': expected a number, got 'x'; correct it, or name"):
        Forecasting(ForecastingOptions(horizon=2)).read(tmp_path / "rows.jsonl")


def test_a_note_names_series_that_training_did_not_have(
    wave: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (wave / "wave.csv").read_text()
    (tmp_path / "other.csv").write_text(text.replace("load", "heat", 1))
    assert main(["forecast", str(wave / "run"), str(tmp_path / "other.csv")]) == 0
    assert "note: the run was not trained on heat; its scale is computed from the file\n" in capsys.readouterr().err
    assert main(["forecast", str(wave / "run"), str(wave / "wave.csv")]) == 0
    assert "note: " not in capsys.readouterr().err
