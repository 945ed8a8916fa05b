"""After training, the network is averaged with a ridge regression. Dev data determines the share of each."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.linear_model import Ridge

from glassgate.tasks.forecasting import Forecasting, ForecastingOptions
from glassgate.tasks.forecasting.network import Direct, LinearMap, Sizes
from glassgate.tasks.forecasting.ridge import Products, fit, share_of_network, windows_of
from glassgate.tasks.forecasting.series import series_of
from glassgate.tasks.task import Split
from tests.tasks.forecasting.test_network import batch, built
from tests.tasks.training.test_loop import Notes

SMALL = {"horizon": 3, "look_back": 6, "hidden_size": 4, "epochs": 2, "threads": 1}


def waves(count: int = 90, noise: float = 0.3) -> Split:
    random = np.random.default_rng(0)
    values = np.sin(np.arange(count) / 3) + noise * random.normal(size=count)
    return Forecasting(ForecastingOptions.from_mapping(SMALL)).split([series_of(values, "wave")])


def test_the_regression_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(1)
    past, future = random.normal(size=(50, 6)), random.normal(size=(50, 3))
    weights = random.uniform(0.5, 2.0, (50, 1))
    arrays = [torch.tensor(each) for each in (past, future, weights)]
    products = Products((each[rows] for each in arrays) for rows in (slice(0, 20), slice(20, 50)))
    model = Ridge(alpha=10.0).fit(past, future, sample_weight=weights[:, 0])
    ours = products.ridge(10.0)
    np.testing.assert_allclose(ours.numpy(), np.vstack([model.intercept_, model.coef_.T]), atol=1e-10)
    errors = ((future - model.predict(past)) ** 2 * weights).sum(0) / weights.sum()
    np.testing.assert_allclose(products.errors(ours).numpy(), errors)


@pytest.mark.parametrize("head", ["mse", "quantiles", "gaussian", "student-t"])
@pytest.mark.parametrize("normalize", ["last", "window"])
def test_a_share_of_the_network_is_added_to_the_rest_of_the_linear_map(head: str, normalize: str) -> None:
    sizes = Sizes(known=1, series=2)
    ours, options = built(sizes, head=head, normalize=normalize)
    assert isinstance(ours, Direct)
    given, scale = batch(sizes), torch.ones(5, 1)
    fitted = LinearMap(torch.randn(9, 12), torch.randn(9), torch.rand(9) + 0.5)
    with torch.no_grad():
        window, alone = ours.window(given), ours(given).forecast
        linear = (window.values[:, :12] @ fitted.weight.T + fitted.bias) * window.scale + window.shift
        ours.blend(fitted, 0.25)
        blended = ours(given).forecast
        location = ours.head.locations[len(ours.head.locations) // 2]
        torch.testing.assert_close(blended[..., location], 0.25 * alone[..., location] + 0.75 * linear)
        ours.blend(fitted, 0.0)
        forecast = ours(given).forecast
        torch.testing.assert_close(ours.head.point(forecast, scale), linear)
        quantiles = ours.head.quantiles(forecast, options.levels)
        if quantiles is not None:  # of normal distributions with the errors of the map
            width = (quantiles[..., 2] - quantiles[..., 0]) / window.scale
            torch.testing.assert_close(width, (2 * 1.2815516 * fitted.deviation).expand(5, 9))


def test_the_dev_data_determines_the_share() -> None:
    split = waves(600, noise=0.05)
    task = Forecasting(ForecastingOptions.from_mapping(SMALL))
    task.fit(split)
    network, parts = task.network, task.encode_split(split)
    assert isinstance(network, Direct)
    fitted = fit(*(windows_of(network, parts[name], task.padding) for name in ("train", "dev")))
    nothing = LinearMap(*(torch.zeros_like(each) for each in fitted))
    network.blend(fitted, 0.0)  # now the network forecasts as the map, which is better than none
    assert 0.5 < share_of_network(network, nothing, parts["dev"], task.padding) <= 1
    assert share_of_network(network, fitted, parts["dev"], task.padding) == 0
    network.blend(fitted._replace(weight=torch.randn(3, 6)), 0.5)
    assert share_of_network(network, fitted, parts["dev"], task.padding) < 0.2


def test_a_run_reports_the_share_and_trains_the_same_network_without_it(tmp_path: Path) -> None:
    split, notes = waves(), Notes()
    for name, ridge in (("with", True), ("without", False)):
        task = Forecasting(ForecastingOptions.from_mapping({**SMALL, "ridge": ridge}))
        result = task.fit(split, run=tmp_path / name, progress=notes)
        assert result["dev"] == pytest.approx(task.evaluate(split.dev) | result["dev"])
        loaded = Forecasting.load(tmp_path / name)
        assert loaded.evaluate(split.test)["mse"] == pytest.approx(result["test"]["mse"], rel=1e-5)
    assert sum("of a ridge regression" in each for each in notes.told) == 1
    kept = [load_file(tmp_path / name / "model.safetensors") for name in ("with", "without")]
    encoder = [name for name in kept[0] if name.startswith("encoder.")]
    assert encoder
    assert all(kept[0][name].equal(kept[1][name]) for name in encoder)
    assert not kept[0]["steps.bias"].equal(kept[1]["steps.bias"])
