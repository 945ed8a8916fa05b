"""The spread of a measure equals the spread of the measure on resampled groups."""

from collections.abc import Callable

import numpy as np
import pytest

from glassgate.glass import bootstrap

LENGTHS = [7, 5, 9] * 8


def resampled(measure: Callable[[np.ndarray], np.ndarray], number: np.ndarray) -> np.ndarray:
    """A measure of the steps of each sample, computed from their indices."""
    places = [np.flatnonzero(number == group) for group in range(number.max() + 1)]
    return np.stack(
        [
            measure(np.concatenate([np.tile(at, int(often)) for at, often in zip(places, row, strict=True)]))
            for row in bootstrap.weights(number)
        ]
    )


def test_measures_of_samples() -> None:
    random, number = np.random.default_rng(1), bootstrap.groups(LENGTHS)
    x, y = random.normal(size=(2, len(number), 3))
    y += x * [0.0, 0.5, 3.0]
    np.testing.assert_allclose(bootstrap.means(x, number), resampled(lambda at: x[at].mean(0), number))
    np.testing.assert_allclose(bootstrap.means(x[:, 0], number), resampled(lambda at: x[at, 0].mean(0), number))
    np.testing.assert_allclose(bootstrap.deviations(x, number), resampled(lambda at: x[at].std(0), number))
    expected = resampled(lambda at: np.diag(np.corrcoef(x[at].T, y[at].T)[:3, 3:]), number)
    np.testing.assert_allclose(bootstrap.correlations(x, y, number), expected)
    low, high = bootstrap.of_mean(x[:, 0], number)
    assert (low, high) == pytest.approx(np.quantile(resampled(lambda at: x[at, 0].mean(0), number), (0.05, 0.95)))


def test_a_constant_has_no_spread_and_no_correlation() -> None:
    number, one = bootstrap.groups(LENGTHS), np.ones((sum(LENGTHS), 1))
    assert not bootstrap.deviations(one, number).any()
    assert not bootstrap.correlations(one, np.arange(len(number))[:, None], number).any()


def test_an_interval_of_a_negative_correlation_is_that_of_its_size() -> None:
    x = np.arange(100.0)
    assert bootstrap.of_correlation(x, -x, bootstrap.groups([100])) == pytest.approx((1, 1))


def test_few_passages_are_divided_into_blocks() -> None:
    assert len(set(bootstrap.groups([50, 50]))) == 20
    assert len(set(bootstrap.groups([1] * 30))) == 30
