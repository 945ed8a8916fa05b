"""A `TimeSeries` of darts is trained on as it is, and its forecast goes back into darts."""

import numpy as np
import pytest

from glassgate.tasks.forecasting.task import Forecasting, ForecastingOptions

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("default")]


def test_a_series_of_darts_and_its_forecast() -> None:
    pandas = pytest.importorskip("pandas")
    from darts import TimeSeries

    hours = pandas.date_range("2024-01-01", periods=160, freq="h")
    waves = {"load": np.sin(np.arange(160) / 4), "oil": np.cos(np.arange(160) / 9)}
    series = TimeSeries.from_dataframe(pandas.DataFrame(waves, index=hours))
    options = {"horizon": 4, "look_back": 12, "hidden_size": 8, "epochs": 2, "head": "quantiles", "threads": 1}
    task = Forecasting(ForecastingOptions.from_mapping(options))
    result = task.fit({"train": series[:120], "dev": series[120:]})
    assert result["dev"]["mse"] > 0
    forecast = TimeSeries.from_dataframe(task.forecast(series))
    assert forecast.start_time() == series.end_time() + series.freq
    assert len(forecast) == 4
    assert {"load", "load_q0.500", "oil", "oil_q0.500"} <= set(forecast.components)
    again = task.forecast(series.to_dataframe())
    assert np.allclose(again.to_numpy(), forecast.values())
