"""Forecasts depend only on the past. Scores equal NumPy's. Saved, resumed and converted runs give equal forecasts."""

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
import torch

from glassgate.cli import main
from glassgate.tasks.data import arrow as mapped
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.forecasting.options import HEADS, MODELS
from glassgate.tasks.forecasting.scores import DataErrors
from glassgate.tasks.forecasting.series import Series, series_of
from glassgate.tasks.forecasting.series.schema import MONTH, TIME, Frequency
from glassgate.tasks.forecasting.task import Forecasting, ForecastingOptions
from glassgate.tasks.progress import Interrupted
from glassgate.tasks.runs import CHECKPOINT, MODEL
from tests.tasks.training.test_resume import CtrlC, same_files

pytestmark = pytest.mark.usefixtures("kept_checkpoints")

HOUR = Frequency(TIME, 3600 * 10**6)
HOURS = [f"2024-01-01 {hour:02}:00" for hour in range(15)]
SMALL = {
    "horizon": 4, "look_back": 8, "segment": 4, "hidden_size": 6, "embedding_size": 3, "epochs": 1, "batch_size": 16,
    "samples": 5, "season": 6, "dev_steps": 12, "test_steps": 12, "threads": 1, "save_every": 0.0,
}  # fmt: skip


WORDS = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]


def made(name: str = "a", count: int = 80, seed: int = 0, **others: Any) -> Series:
    """Return counts with a season of six steps."""
    steps, random = np.arange(count), np.random.default_rng(seed)
    values = 10 + 5 * np.sin(steps * np.pi / 3) + random.integers(0, 4, count)
    return replace(series_of(values.round(), name, np.datetime64("2024-01-01", "us"), HOUR), **others)


def trained(examples: list[Series], **options: Any) -> Forecasting:
    task = Forecasting(ForecastingOptions.from_mapping(SMALL | options))
    task.fit(task.split(examples))
    return task


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("head", HEADS)
def test_no_value_after_the_cut_changes_a_forecast(model: str, head: str) -> None:
    """Forecasts from the split, also naive ones, are equal for two data sets that differ only after it."""
    task = Forecasting(ForecastingOptions.from_mapping(SMALL | {"model": model, "head": head, "calendar": True}))
    one, names = [made("a"), made("b", seed=1)], ("a", "b")
    cut = len(one[0]) - 24
    other = [made(name, seed=number) for number, name in enumerate(names)]
    for number, each in enumerate(other):
        values = each.values[:].copy()
        values[cut:] = 1000 + number
        other[number] = made(name=names[number], seed=number)
        other[number] = replace(other[number], values=series_of(values).values)
    forecasts = []
    for series in (one, other):
        parts = task.split(series)
        task.fit(replace(parts, dev=[]))
        (first, second) = task.predict([each.part(0, cut) for each in series])
        inside = [origin for origin in task.backtest(series) if origin.start == cut]
        assert inside[0].forecast.values == pytest.approx(first[0].values, rel=1e-5)
        forecasts.append((first, second, [(each.forecast, each.naive, each.seasonal) for each in inside]))
    assert forecasts[0] == forecasts[1]


def test_windows_are_exact() -> None:
    """Every origin of a part occurs once, from the end of the previous part on, with the values of the series."""
    series = made()
    task = trained([series])
    parts = task.split([series])
    values = series.values[:]
    for part, start, stop in ((parts.dev, 56, 68), (parts.test, 68, 80)):
        origins = list(task.backtest(part))
        shift = start - 8
        assert [origin.start + shift for origin in origins] == list(range(start, stop - 4 + 1))
        for origin in origins:
            place = origin.start + shift
            assert origin.target == pytest.approx(values[place : place + 4])
            assert origin.past == pytest.approx(values[place - 8 : place])
            assert origin.naive == pytest.approx([values[place - 1]] * 4)
            assert origin.seasonal == pytest.approx(values[place - 6 : place - 2])
            assert str(part[0].times(origin.start, origin.start + 1)[0]) == str(series.times(place, place + 1)[0])
    batches = list(task.batching().training([20, 11, 12], epoch=0))
    pieces = sorted((piece.index, piece.start, piece.stop) for batch in batches for piece in batch)
    assert pieces == [(0, k, k + 12) for k in range(9)] + [(2, 0, 12)]
    assert list(task.batching().training([20, 11, 12], epoch=1)) != batches


def test_scores_are_those_of_numpy() -> None:
    series = [made("a"), made("b", seed=1)]
    series[1] = replace(series[1], values=series_of(100 * series[1].values[:]).values)
    task = trained(series, head="quantiles")
    parts = task.split(series)
    names = ("mse", "mae", "mase", "rmsse", "loss", "size", "in", "away", "mape", "smape", "last_mape")
    wanted: dict[str, list[Any]] = {name: [] for name in names}
    plain: dict[str, list[float]] = {"naive": [], "seasonal": []}
    for part, train in zip(parts.test, parts.train, strict=True):
        known = train.values[:]
        deviation, apart = known.std(), known[6:] - known[:-6]
        for origin in task.backtest([part]):
            away = np.array(origin.forecast.values) - origin.target
            wanted["mse"].append(np.mean((away / deviation) ** 2))
            wanted["mae"].append(np.mean(np.abs(away / deviation)))
            wanted["mase"].append(np.mean(np.abs(away)) / np.mean(np.abs(apart)))
            wanted["rmsse"].append(np.sqrt(np.mean(away**2) / np.mean(apart**2)))
            wanted["away"] += np.abs(away).tolist()
            for value, last, target in zip(origin.forecast.values, origin.naive, origin.target, strict=True):
                wanted["mape"].append(abs(value - target) / abs(target))
                wanted["smape"].append(2 * abs(value - target) / (abs(value) + abs(target)))
                wanted["last_mape"].append(abs(last - target) / abs(target))
            for step, target in zip(origin.forecast.quantiles or [], origin.target, strict=True):
                for level, value in zip((0.1, 0.5, 0.9), step, strict=True):
                    wanted["loss"].append(2 * max(level * (target - value), (level - 1) * (target - value)) / 3)
                wanted["size"].append(abs(target))
                wanted["in"].append(step[0] <= target <= step[2])
            for name in plain:
                plain[name].append(np.mean(((np.array(getattr(origin, name)) - origin.target) / deviation) ** 2))
    scores = task.evaluate(parts.test)
    for name in ("mse", "mae", "mase", "rmsse"):
        assert scores[name] == pytest.approx(np.mean(wanted[name]), rel=1e-4), name
    assert scores["wql"] == pytest.approx(sum(wanted["loss"]) / sum(wanted["size"]), rel=1e-4)
    assert scores["coverage"] == pytest.approx(np.mean(wanted["in"]))
    assert scores["data_mae"] == pytest.approx(np.mean(wanted["away"]), rel=1e-4)
    assert scores["data_rmse"] == pytest.approx(np.sqrt(np.mean(np.square(wanted["away"]))), rel=1e-4)
    assert scores["mape"] == pytest.approx(np.mean(wanted["mape"]), rel=1e-3)
    assert scores["smape"] == pytest.approx(np.mean(wanted["smape"]), rel=1e-4)
    assert scores["naive_mape"] == pytest.approx(np.mean(wanted["last_mape"]), rel=1e-3)
    assert scores["naive_mse"] == pytest.approx(np.mean(plain["naive"]), rel=1e-4)
    assert scores["seasonal_mse"] == pytest.approx(np.mean(plain["seasonal"]), rel=1e-4)
    assert [line.split()[0] for line in task.summary.table(scores).splitlines()[1:4]] == [
        "model",
        "last",
        "seasonal",
    ]


def test_percentages_leave_zeros_out() -> None:
    """Values 0, 10 and 0 after scaling; a forecast of 0, 5 and 10. Only 10 has a relative error."""
    metric = DataErrors()
    values, said = torch.tensor([[0.0, 10.0, 0.0]]), torch.tensor([[0.0, 5.0, 10.0]])
    shift, scale = torch.tensor([3.0]), torch.tensor([7.0])
    values, said = (values - shift) / scale, (said - shift) / scale
    metric.update(said.expand(3, 1, 3), values, shift, scale)
    scores = {name: float(value) for name, value in metric.compute().items()}
    assert scores["mape"] == pytest.approx(0.5)
    assert scores["smape"] == pytest.approx((0 + 5 / 7.5 + 2) / 3)
    assert (scores["data_mae"], scores["seasonal_data_rmse"]) == pytest.approx((5.0, (125 / 3) ** 0.5))


def test_a_model_worse_than_the_naive_forecast_gives_a_note() -> None:
    task = trained([made(count=120)], learning_rate=0.0, ridge=False)
    told = task.summary.table(task.evaluate(task.split([made(count=120)]).test))
    assert "The model does not beat the seasonal naive forecast (mse " in told
    better = trained([made(count=400)], learning_rate=0.02, epochs=8, hidden_size=16)
    assert "does not beat" not in better.summary.table(better.evaluate([made(count=400, seed=2)]))


def test_a_recursive_model_reads_the_covariates_of_the_step_that_it_forecasts() -> None:
    """The series equals its random covariate, so covariates of earlier or later steps have no information about it."""
    random = np.random.default_rng(0)
    chance = random.choice([-1.0, 1.0], 404)
    known = series_of(chance).values
    series = replace(made(count=400), values=series_of(5 + 2 * chance[:400]).values, known=(known,))
    for model in MODELS:
        task = trained([series], model=model, known="x", epochs=8, learning_rate=0.02, hidden_size=16, normalize="none")
        (forecast,) = task.predict([series])[0]
        assert forecast.values == pytest.approx(5 + 2 * chance[400:], abs=1.0), model
        assert task.evaluate([series])["mse"] < 0.1, model
        if model == "recursive":
            turned = chance.copy()
            turned[402] *= -1
            (other,) = task.predict([replace(series, known=(series_of(turned).values,))])[0]
            assert other.values[:2] == forecast.values[:2]
            assert abs(other.values[2] - forecast.values[2]) > 2
    with pytest.raises(DataError, match="expected covariates known ahead for 4 steps after the last value, got 3; add"):
        task.predict([replace(series, known=(known.part(0, 403),))])


@pytest.mark.parametrize("model", MODELS)
def test_resumed_with_the_same_weights(model: str, tmp_path: Path) -> None:
    options = ForecastingOptions.from_mapping(
        SMALL | {"model": model, "head": "student-t", "dropout": 0.2, "epochs": 2}
    )
    split = Forecasting(options).split([made("a"), made("b", seed=1)])
    Forecasting(options).fit(split, run=tmp_path / "whole")
    with pytest.raises(Interrupted):
        Forecasting(options).fit(split, run=tmp_path / "broken", progress=CtrlC(7))
    resumed, _ = Forecasting.resume(tmp_path / "broken", split)
    for name in (MODEL, CHECKPOINT):
        assert same_files(tmp_path / "whole", tmp_path / "broken", name)
    loaded = Forecasting.load(tmp_path / "whole")
    assert loaded.predict(split.test) == resumed.predict(split.test)


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
        monkeypatch.setattr(mapped, "LARGE", large)
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


def test_a_note_names_series_that_training_did_not_have(
    wave: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (wave / "wave.csv").read_text()
    (tmp_path / "other.csv").write_text(text.replace("load", "heat", 1))
    assert main(["forecast", str(wave / "run"), str(tmp_path / "other.csv")]) == 0
    assert "note: the run was not trained on heat; its scale is computed from the file\n" in capsys.readouterr().err
    assert main(["forecast", str(wave / "run"), str(wave / "wave.csv")]) == 0
    assert "note: " not in capsys.readouterr().err


def test_series_that_training_did_not_have_are_scaled_by_their_own_past() -> None:
    task = trained([made("a"), made("b", seed=1)], normalize="none")
    new = made("c", seed=2)
    large = replace(new, values=series_of(1000 * new.values[:] + 5).values)
    one, other = (task.predict([each])[0][0].values for each in (new, large))
    assert other == pytest.approx(1000 * np.array(one) + 5, rel=1e-4)
    assert torch.isfinite(torch.tensor(one)).all()


def test_a_run_from_before_the_options_existed_loads(tmp_path: Path) -> None:
    """Its options lack `linear` and `held_out`, and its weights have no linear map of the past."""
    options = ForecastingOptions(horizon=3, hidden_size=4, epochs=1, linear=False)
    task = Forecasting(options)
    series = [series_of(np.sin(np.arange(60)), "wave")]
    task.fit(task.split(series))
    task.save(tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    content = json.loads(file.read_text())
    del content["options"]["linear"], content["options"]["held_out"]
    file.write_text(json.dumps(content))
    loaded = Forecasting.load(tmp_path / "run")
    assert (loaded.options.linear, loaded.options.held_out) == (False, 0.0)
    assert loaded.predict(series) == task.predict(series)
