"""Forecasts depend only on the past. Scores equal NumPy's. Saved and resumed runs give equal forecasts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassgate.tasks.errors import DataError
from glassgate.tasks.forecasting.options import HEADS, MODELS
from glassgate.tasks.forecasting.scores import ForecastScores
from glassgate.tasks.forecasting.series import Series, series_of
from glassgate.tasks.forecasting.series.frequency import TIME, Frequency
from glassgate.tasks.forecasting.task import Forecasting, ForecastingOptions
from glassgate.tasks.progress import Interrupted
from glassgate.tasks.runs import CHECKPOINT, MODEL
from tests.tasks.training.test_resume import CtrlC, same_files

pytestmark = pytest.mark.usefixtures("kept_checkpoints")

HOUR = Frequency(TIME, 3600 * 10**6)
SMALL = {
    "horizon": 4, "look_back": 8, "segment": 4, "hidden_size": 6, "embedding_size": 3, "epochs": 1, "batch_size": 16,
    "samples": 5, "season": 6, "dev_steps": 12, "test_steps": 12, "threads": 1, "save_every": 0.0,
}  # fmt: skip


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
    metric = ForecastScores()
    values, said = torch.tensor([[0.0, 10.0, 0.0]]), torch.tensor([[0.0, 5.0, 10.0]])
    shift, scale = torch.tensor([3.0]), torch.tensor([7.0])
    values, said = (values - shift) / scale, (said - shift) / scale
    metric.update(said.expand(3, 1, 3), values, torch.ones(1), torch.ones(1), shift, scale)
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


def test_series_that_training_did_not_have_are_scaled_by_their_own_past() -> None:
    task = trained([made("a"), made("b", seed=1)], normalize="none")
    new = made("c", seed=2)
    large = replace(new, values=series_of(1000 * new.values[:] + 5).values)
    one, other = (task.predict([each])[0][0].values for each in (new, large))
    assert other == pytest.approx(1000 * np.array(one) + 5, rel=1e-4)
    assert torch.isfinite(torch.tensor(one)).all()
