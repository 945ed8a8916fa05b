"""The ridge regression of a series, compared with its equations, and its sum of parts of the steps."""

import numpy as np
import pytest
import torch

from glassgate.tasks.networks.ridge import log_odds_factor, ridge
from glassgate.tasks.networks.step_scores import StepScores, step_ridge


def solve(values: np.ndarray, targets: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights and the constant of a ridge regression, from its normal equations."""
    mean, constant = values.mean(0), targets.mean(0)
    products = (values - mean).T @ (values - mean) + penalty * np.eye(values.shape[1])
    weights = np.linalg.solve(products, (values - mean).T @ (targets - constant))
    return weights, constant - mean @ weights


@pytest.mark.parametrize("count", [12, 40])  # fewer and more series than values
def test_ridge_has_the_penalty_with_the_smallest_errors_on_series_that_are_left_out(count: int) -> None:
    random = np.random.default_rng(count)
    series = random.normal(3, [1, 9], (count, 7, 2))
    series[:, 4, 1] = 5.0  # a constant value
    targets = series[:, :2, 0] + random.normal(0, 0.5, (count, 2))
    fitted = step_ridge(list(series), targets)
    assert fitted is not None
    flat = series.reshape(count, -1)
    deviation = flat.std(0)
    deviation[deviation < 1e-9] = 1.0
    values = (flat - flat.mean(0)) / deviation

    def left_out(penalty: float) -> np.ndarray:
        rows = []
        for k in range(count):
            weights, constant = solve(np.delete(values, k, 0), np.delete(targets, k, 0), penalty)
            rows.append(constant + values[k] @ weights)
        return np.array(rows)

    penalty = min(np.logspace(-3, 4, 8), key=lambda penalty: float(((targets - left_out(penalty)) ** 2).sum()))
    weights, _ = solve(values, targets, penalty)
    np.testing.assert_allclose(ridge(values, targets).left_out, left_out(penalty), atol=1e-6)
    other = random.normal(3, 9, (5, 7, 2))
    other[:, 4, 1] = 5.0
    expected = (other.reshape(5, -1) - flat.mean(0)) / deviation @ weights
    scores = StepScores(torch.tensor(fitted.weight), torch.tensor(fitted.bias))
    parts = scores(torch.tensor(other), torch.ones(5, 7))
    assert not fitted.weight[4, 1].any()
    np.testing.assert_allclose(parts.sum(1), expected, atol=1e-6)


def test_the_parts_of_shorter_longer_and_padded_series() -> None:
    random = np.random.default_rng(0)
    series = random.normal(2, 1, (20, 4, 3))
    fitted = step_ridge(list(series), random.normal(0, 1, (20, 1)))
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
    assert step_ridge(series[:2], targets[:2]) is None
    assert step_ridge([*series[:2], np.ones((5, 1))], targets) is None
    assert step_ridge([np.ones((2**14 + 1, 1))] * 3, targets) is None
    fitted = step_ridge(series, targets)
    assert fitted is not None
    assert not fitted.weight.any()


def test_outputs_become_log_odds_only_as_far_as_they_predict_labels_of_other_examples() -> None:
    random = np.random.default_rng(0)
    labels = random.random(2000) < 0.2
    targets = np.stack([~labels, labels], 1).astype(float)
    log_odds = random.normal(0, 1, 2000) + 2 * labels  # two normal distributions: their exact log-odds are 2 x - 2
    left_out = np.stack([1 - log_odds, log_odds - 1], 1) / 4
    assert log_odds_factor(left_out, targets) == 4.0
    assert log_odds_factor(left_out[::-1], targets) < 0.6
    assert log_odds_factor(-left_out, targets) == 0.0
