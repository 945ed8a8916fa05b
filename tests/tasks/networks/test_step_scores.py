"""The ridge regression of a series, compared with scikit-learn, and its sum of parts of the steps."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler

from glassgate.tasks.networks.step_scores import StepScores, ridge


@pytest.mark.parametrize("count", [12, 40])  # fewer and more series than values
def test_ridge_equals_that_of_scikit_learn(count: int) -> None:
    random = np.random.default_rng(count)
    series = random.normal(3, [1, 9], (count, 7, 2))
    series[:, 4, 1] = 5.0  # a constant value
    targets = series[:, :2, 0] + random.normal(0, 0.5, (count, 2))
    scaler = StandardScaler()
    model = RidgeCV(np.logspace(-3, 4, 8)).fit(scaler.fit_transform(series.reshape(count, -1)), targets)
    fitted = ridge(list(series), targets - targets.mean(0))
    assert fitted is not None
    other = random.normal(3, 9, (5, 7, 2))
    other[:, 4, 1] = 5.0
    expected = model.predict(scaler.transform(other.reshape(5, -1))) - targets.mean(0)
    scores = StepScores(torch.tensor(fitted.weight), torch.tensor(fitted.bias))
    parts = scores(torch.tensor(other), torch.ones(5, 7))
    assert not fitted.weight[4, 1].any()
    np.testing.assert_allclose(parts.sum(1), expected, atol=1e-6)


def test_the_parts_of_shorter_longer_and_padded_series() -> None:
    random = np.random.default_rng(0)
    series = random.normal(2, 1, (20, 4, 3))
    fitted = ridge(list(series), random.normal(0, 1, (20, 1)))
    assert fitted is not None
    scores = StepScores(torch.tensor(fitted.weight), torch.tensor(fitted.bias))
    mean = torch.tensor(series.mean(0))[None]
    torch.testing.assert_close(scores(mean, torch.ones(1, 4)), torch.zeros(1, 4, 1).double())
    longer = torch.cat([mean + 1, mean], 1)
    parts = scores(longer, torch.ones(1, 8))
    assert not parts[:, 4:].any()
    torch.testing.assert_close(parts[:, :4], scores(mean + 1, torch.ones(1, 4)))
    torch.testing.assert_close(scores(longer[:, :2], torch.ones(1, 2)), parts[:, :2])
    assert not scores(longer, torch.zeros(1, 8)).any()
    assert parts[:, :4].all()


def test_series_without_a_ridge_regression() -> None:
    series, targets = [np.ones((4, 1))] * 3, np.ones((3, 1))
    assert ridge(series[:2], targets[:2]) is None
    assert ridge([*series[:2], np.ones((5, 1))], targets) is None
    assert ridge([np.ones((2**14 + 1, 1))] * 3, targets) is None
    fitted = ridge(series, targets)
    assert fitted is not None
    assert not fitted.weight.any()
