"""Time stamps keep their time zone and form, also across a change of the offset, as pandas computes it."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from glassgate.tasks.forecasting.series import read_series
from glassgate.tasks.forecasting.task import Forecasting, ForecastingOptions

FORMS = {
    "iso": lambda t: t.isoformat(),
    "blank": str,
    "without seconds": lambda t: t.isoformat(timespec="minutes"),
    "no colon": lambda t: t.strftime("%Y-%m-%d %H:%M:%S %z"),
}
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("step", ["h", "D"])
def test_times_after_the_end_have_the_zone_and_the_form_of_the_input(
    form: str, zone: str, step: str, tmp_path: Path
) -> None:
    """The file ends shortly before the next change of the offset, and contains the previous one."""
    path = tmp_path / "table.csv"
    local = pd.date_range("2023-08-01", "2024-05-01", freq="D", tz=zone)
    changes = [day for day, after in pairwise(local) if day.utcoffset() != after.utcoffset()]
    times = pd.date_range("2023-08-01", changes[-1].tz_localize(None) + pd.Timedelta(days=3), freq=step, tz=zone)
    texts, ahead = [FORMS[form](time) for time in times], 100 if step == "h" else 4
    pd.DataFrame({"time": texts[:-ahead], "y": np.arange(len(times) - ahead) % 7}).to_csv(path, index=False)
    (series,) = read_series(path)
    assert len({time.utcoffset() for time in times[-ahead - 3 :]}) == 2
    assert [series.frequency.text(time) for time in series.times(0, len(times))] == texts


@pytest.mark.parametrize(
    ("first", "after"),
    [
        ("2024-01-31T00:00:00Z", "2024-01-31T06:00:00Z"),
        ("2024-01-31 00:00:00+05:30", "2024-01-31 06:00:00+05:30"),
        ("31.1.2024 0:00", "31.1.2024 6:00"),
        ("31/01/2024 00:00", "31/01/2024 06:00"),
        ("2024-01-31 00:00:00", "2024-01-31 06:00:00"),
    ],
)
def test_forms_of_hours(first: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    hour = first.index("0:00")
    texts = [first[:hour] + f"{k}{first[hour + 1 :]}" for k in range(6)]
    path.write_text("time,y\n" + "".join(f"{text},{k}\n" for k, text in enumerate(texts)))
    (series,) = read_series(path)
    assert series.frequency.text(series.times(6, 7)[0]) == after


@pytest.mark.parametrize(
    ("texts", "after"),
    [
        (["1950Q1", "1950Q2", "1950Q3"], "1950Q4"),
        (["1949-11", "1949-12", "1950-01"], "1950-02"),
        (["Nov 1949", "Dec 1949", "Jan 1950"], "Feb 1950"),
        (["19580329", "19580330", "19580331"], "19580401"),
        (["2024-01-29", "2024-01-30", "2024-01-31"], "2024-02-01"),
        (["1949", "1950", "1951"], "1952"),
    ],
)
def test_forms_of_days_and_months(texts: list[str], after: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("date,y\n" + "".join(f"{text},{k}\n" for k, text in enumerate(texts)))
    (series,) = read_series(path)
    assert series.frequency.text(series.times(3, 4)[0]) == after


def test_frames_keep_their_zone() -> None:
    times = pd.date_range("2024-02-01", "2024-03-30", freq="D", tz="Europe/Berlin")
    frame = pd.DataFrame({"ds": times, "y": np.sin(np.arange(len(times)))})
    task = Forecasting(ForecastingOptions(horizon=3, hidden_size=4, epochs=1, baselines=False))
    task.fit(frame)
    expected = list(pd.date_range("2024-03-31", periods=3, freq="D", tz="Europe/Berlin"))
    assert list(task.forecast(frame)["ds"]) == expected
    hourly = frame.assign(ds=pd.date_range(times[-1], periods=len(times), freq="h"))
    task.fit(hourly)
    assert list(task.forecast(hourly)["ds"]) == [hourly.ds.iloc[-1] + pd.Timedelta(hours=k) for k in (1, 2, 3)]
