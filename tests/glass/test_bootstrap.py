"""Bootstrap measures equal measures of explicitly resampled steps."""

from collections.abc import Callable

import numpy as np
import pytest

from glassgate.glass import bootstrap

LENGTHS = [7, 5, 9] * 8


def resampled(measure: Callable[[np.ndarray], np.ndarray], groups: np.ndarray) -> np.ndarray:
    """A measure of the resampled steps of each sample."""
    places = [np.flatnonzero(groups == group) for group in range(groups.max() + 1)]
    return np.stack(
        [
            measure(np.concatenate([np.tile(at, int(often)) for at, often in zip(places, row, strict=True)]))
            for row in bootstrap.weights(groups)
        ]
    )


def test_measures_equal_those_of_resampled_steps() -> None:
    random, groups = np.random.default_rng(1), bootstrap.resampling_groups(LENGTHS)
    x, y = random.normal(size=(2, len(groups), 3))
    y += x * [0.0, 0.5, 3.0]
    np.testing.assert_allclose(bootstrap.means(x, groups), resampled(lambda at: x[at].mean(0), groups))
    np.testing.assert_allclose(bootstrap.means(x[:, 0], groups), resampled(lambda at: x[at, 0].mean(0), groups))
    np.testing.assert_allclose(bootstrap.deviations(x, groups), resampled(lambda at: x[at].std(0), groups))
    expected = resampled(lambda at: np.diag(np.corrcoef(x[at].T, y[at].T)[:3, 3:]), groups)
    np.testing.assert_allclose(bootstrap.correlations(x, y, groups), expected)
    low, high = bootstrap.mean_interval(x[:, 0], groups)
    assert (low, high) == pytest.approx(np.quantile(resampled(lambda at: x[at, 0].mean(0), groups), (0.05, 0.95)))


def test_a_constant_has_no_deviation_and_no_correlation() -> None:
    groups, one = bootstrap.resampling_groups(LENGTHS), np.ones((sum(LENGTHS), 1))
    assert not bootstrap.deviations(one, groups).any()
    assert not bootstrap.correlations(one, np.arange(len(groups))[:, None], groups).any()


def test_an_interval_of_a_negative_correlation_is_that_of_its_magnitude() -> None:
    x = np.arange(100.0)
    assert bootstrap.correlation_interval(x, -x, bootstrap.resampling_groups([100])) == pytest.approx((1, 1))


def test_few_passages_are_divided_into_blocks() -> None:
    assert len(set(bootstrap.resampling_groups([50, 50]))) == 20
    assert len(set(bootstrap.resampling_groups([1] * 30))) == 30
