"""Ridge regressions compared with their equations, and the maps of series that contain them."""

import numpy as np
import pytest
import torch

from glassgate.tasks.networks import maps
from glassgate.tasks.networks.maps import Fitted, KernelScores, StepScores, fit_series, kernel_features, part_means
from glassgate.tasks.networks.ridge import log_odds_factor, ridge


def fit(series: np.ndarray, targets: np.ndarray) -> Fitted:
    found = fit_series([*series.astype(np.float32)], targets)
    assert found is not None
    return found


def scores_of(found: Fitted, series: np.ndarray) -> torch.Tensor:
    """Return the parts of the outputs of a linear map of the steps."""
    weight, bias = found.arguments(found.regression.coefficients)
    lengths = torch.full((len(series),), series.shape[1])
    return StepScores(torch.tensor(weight), torch.tensor(bias))(torch.tensor(series).float(), lengths)


@pytest.mark.parametrize("values", [5, 30])  # fewer and more values than examples
def test_ridge_has_the_penalty_with_the_smallest_errors_on_examples_that_are_left_out(values: int) -> None:
    random = np.random.default_rng(values)
    inputs = random.normal(0, 1, (20, values))
    targets = inputs[:, :2] + random.normal(0, 0.5, (20, 2))

    def weights(keep: np.ndarray, penalty: float) -> np.ndarray:
        products = inputs[keep].T @ inputs[keep] + penalty * np.eye(values)
        solution: np.ndarray = np.linalg.solve(products, inputs[keep].T @ targets[keep])
        return solution

    def left_out(penalty: float) -> np.ndarray:
        return np.stack([inputs[k] @ weights(np.arange(20) != k, penalty) for k in range(20)])

    penalty = min(np.logspace(-3, 4, 8), key=lambda penalty: float(((targets - left_out(penalty)) ** 2).sum()))
    found = ridge(inputs @ inputs.T, targets)
    np.testing.assert_allclose(found.left_out, left_out(penalty), atol=1e-6)
    np.testing.assert_allclose(inputs.T @ found.coefficients, weights(np.full(20, True), penalty), atol=1e-6)
    assert found.error == pytest.approx(np.square(targets - left_out(penalty)).mean())


def test_a_linear_relation_gives_a_linear_map_of_steps() -> None:
    random = np.random.default_rng(0)
    series = random.normal(3, [1, 9], (40, 7, 2))
    series[:, 4, 1] = 5.0  # a constant value
    targets = series[:, :2, 0] - series[:, 2:4, 0]
    found = fit(series, targets - targets.mean(0))
    assert found.name == "ridge"
    other = random.normal(3, [1, 9], (5, 7, 2))
    expected = other[:, :2, 0] - other[:, 2:4, 0] - targets.mean(0)
    np.testing.assert_allclose(scores_of(found, other).sum(1), expected, atol=0.05)
    weight = np.array(found.arguments(found.regression.coefficients)[0])
    assert not weight[4, 1].any()
    mean = series.mean(0)[None]
    np.testing.assert_allclose(scores_of(found, mean), 0, atol=1e-5)
    longer = np.concatenate([mean + 1, mean], 1)
    parts = scores_of(found, longer)
    assert not parts[:, 7:].any()
    torch.testing.assert_close(parts[:, :7], scores_of(found, mean + 1))
    torch.testing.assert_close(scores_of(found, longer[:, :2]), parts[:, :2])


def test_another_relation_of_series_of_any_length_gives_a_map_with_a_kernel() -> None:
    random = np.random.default_rng(0)
    angles, lengths = random.uniform(0, 6, 60), random.integers(4, 70, 60)
    series = [np.stack([np.full(n, np.cos(a)), np.full(n, np.sin(a))], 1) for a, n in zip(angles, lengths, strict=True)]
    series = [each.astype(np.float32) for each in series]
    targets = np.sin(2 * angles)[:, None]
    found = fit_series(series, targets)
    assert found is not None
    assert found.name == "kernel"
    assert found.regression.error < 0.01
    support, coefficients, rate, differences = found.arguments(found.regression.coefficients)
    assert not differences
    points = np.stack([np.cos(angles), np.sin(angles)], 1)
    kernel = np.exp(-rate * ((points[:, None] - points) ** 2).sum(2) / 2)
    scores = KernelScores(torch.tensor(support), torch.tensor(coefficients), rate, differences)
    batch = torch.nn.utils.rnn.pad_sequence([*map(torch.from_numpy, series)], batch_first=True)
    outputs = scores(batch, torch.from_numpy(lengths)).sum(1)
    np.testing.assert_allclose(outputs, kernel @ found.regression.coefficients, atol=2e-3)


def test_the_means_of_equal_parts() -> None:
    random = np.random.default_rng(0)
    lengths = [1, 3, 7, 12]
    steps = torch.from_numpy(random.normal(0, 1, (4, 12, 2)))
    for parts in (1, 3, 12, 20):
        found = part_means(steps, torch.tensor(lengths), parts)
        changes = kernel_features(steps, torch.tensor(lengths), parts - 1, True)
        torch.testing.assert_close(changes, found.diff(dim=1))
        for row, length in enumerate(lengths):  # each step repeated once for each part
            repeated = steps[row, :length].repeat_interleave(parts, 0).view(parts, length, 2)
            torch.testing.assert_close(found[row], repeated.mean(1))


def test_series_without_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    series, targets = [np.ones((4, 1), np.float32)] * 3, np.ones((3, 1)) - 1
    assert fit_series(series[:2], targets[:2]) is None
    assert fit_series([*series[:2], np.ones((5, 1), np.float32)], targets) is None  # equal series have no distances
    found = fit(np.stack(series), targets)
    assert not np.array(found.arguments(found.regression.coefficients)[0]).any()
    several = [np.random.default_rng(k).normal(0, 1, (4 + k, 1)).astype(np.float32) for k in range(4)]
    assert fit_series(several, np.ones((4, 1))) is not None
    monkeypatch.setattr(maps, "MAX_EXAMPLES", 3)
    assert fit_series(several, np.ones((4, 1))) is None


def test_outputs_become_log_odds_only_as_far_as_they_predict_labels_of_other_examples() -> None:
    random = np.random.default_rng(0)
    labels = random.random(2000) < 0.2
    targets = np.stack([~labels, labels], 1).astype(float)
    log_odds = random.normal(0, 1, 2000) + 2 * labels  # two normal distributions: their exact log-odds are 2 x - 2
    left_out = np.stack([1 - log_odds, log_odds - 1], 1) / 4
    assert log_odds_factor(left_out, targets) == 4.0
    assert log_odds_factor(left_out[::-1], targets) < 0.6
    assert log_odds_factor(-left_out, targets) == 0.0


def test_large_coefficients_of_a_kernel_cancel_exactly() -> None:
    steps = torch.linspace(0, 3, 50)[None, :, None].sin()
    support = torch.cat([steps + 1e-3, steps - 1e-3])
    scores = KernelScores(support, torch.tensor([[1e5], [-1e5]]), 2.0, False)
    others = steps + torch.linspace(0.1, 1, 20)[:, None, None]
    distances = np.square(others.double().numpy()[:, None] - support.double().numpy()).mean((2, 3))
    expected = np.exp(-2 * distances) @ [1e5, -1e5]
    np.testing.assert_allclose(scores(others, torch.full((20,), 50)).flatten(), expected, rtol=1e-6)
