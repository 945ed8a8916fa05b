"""Effects of gradients: unread directions, vanishing gradients and exploding gradients."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from glassgate.glass import bootstrap
from glassgate.glass.bootstrap import Interval
from glassgate.glass.effects.effect import Effect
from glassgate.glass.gradients import vanishing_lag
from glassgate.glass.study import Direction, Flow, Study
from glassgate.glass.wording import rounded, steps

# Only gradients that vanish within this number of steps are findings.
MAX_VANISHING_LAG = 30
# A gradient explodes if, at a lag of this many steps or more, it is larger than at lag 0.
_MIN_LAG = 5
# The maximum number of answers that are resampled.
_MAX_CURVES = 100
# The number of bootstrap samples.
_SAMPLES = 20
# The log10 of a ratio whose denominator is zero.
_MAX_RATIO = 9.0


def unread(study: Study) -> Iterator[Effect]:
    """Log10 of the gradient of the opposite direction, divided by the gradient of this direction, both at lag 0."""
    top = study.directions[-1].label.rsplit(".", 1)[0] if study.directions else ""
    top_directions = [each for each in study.directions if each.label.rsplit(".", 1)[0] == top]
    if len(top_directions) != 2:
        return
    for each, other in (top_directions, top_directions[::-1]):
        this, that = each.flow.get(each.states[0]), other.flow.get(other.states[0])
        if this is None or that is None:
            continue
        before = (
            0.0
            if this.initial_norms is None or that.initial_norms is None
            else _log_ratio(that.initial_norms[:, 0], this.initial_norms[:, 0])
        )

        def interval(numerator: np.ndarray = that.norms[:, 0], denominator: np.ndarray = this.norms[:, 0]) -> Interval:
            pairs = [(_resample(numerator, seed), _resample(denominator, seed)) for seed in range(_SAMPLES)]
            return bootstrap.interval(np.array([_log_ratio(*pair) for pair in pairs]))

        words = {"direction": each.label, "other": other.label}
        yield Effect(each.label, _log_ratio(that.norms[:, 0], this.norms[:, 0]), interval, words, max(0.0, before))


def _log_ratio(numerator: np.ndarray, denominator: np.ndarray) -> float:
    """The log10 of the ratio of two medians."""
    first, second = float(np.nanmedian(numerator)), float(np.nanmedian(denominator))
    return math.log10(first / second) if first > 0 < second else 0.0 if not first else _MAX_RATIO


def vanishing(study: Study) -> Iterator[Effect]:
    """Log2 of the ratio of the lags at which the gradient falls below 1 %: before training over after training."""
    for each, flow in _flows(study, last=True):
        if flow.initial_median is None:
            continue
        after, before = (
            vanishing_lag(flow.lags, flow.quantiles[0]),
            vanishing_lag(flow.lags, flow.initial_median) or flow.lags[-1],
        )
        if after is None or not 0 < after <= MAX_VANISHING_LAG:
            continue

        def interval(flow: Flow = flow) -> Interval:
            def log_lag(curve: np.ndarray) -> float:
                return math.log2(max(1, vanishing_lag(flow.lags, curve) or flow.lags[-1]))

            first = np.array([log_lag(curve) for curve in _median_curves(flow.initial_norms)])
            return bootstrap.interval(first - np.array([log_lag(curve) for curve in _median_curves(flow.norms)]))

        words = {"direction": each.label, "reach": steps(after), "before": steps(before)}
        yield Effect(each.label, math.log2(before / after), interval, words)


def exploding(study: Study) -> Iterator[Effect]:
    """Log10 of the largest norm of the gradient at lag 5 or longer, divided by the norm at lag 0."""
    for each, flow in _flows(study, last=False):
        if flow.lags[-1] < _MIN_LAG:
            continue
        far = np.array(flow.lags) >= _MIN_LAG

        def log_growth(curve: np.ndarray, far: np.ndarray = far) -> float:
            peak, start = float(np.nanmax(curve[far])), float(curve[0])
            return math.log10(peak / start) if peak > 0 and start > 0 else 0.0

        def interval(flow: Flow = flow, log_growth: Callable[[np.ndarray], float] = log_growth) -> Interval:
            return bootstrap.interval(np.array([log_growth(curve) for curve in _median_curves(flow.norms)]))

        value = log_growth(flow.quantiles[0])
        words = {"direction": each.label, "times": rounded(10**value), "lag": steps(flow.lags[-1])}
        null = 0.0 if flow.initial_median is None else max(0.0, log_growth(flow.initial_median))
        yield Effect(each.label, value, interval, words, null)


def _flows(study: Study, last: bool) -> Iterator[tuple[Direction, Flow]]:
    """Yield the gradients of each direction in which every answer reads only one step.

    Args:
        study: the study.
        last: whether to yield the gradients of the last state instead of the first, which is the output.
    """
    for each in study.directions:
        flow = each.flow.get(each.states[-1 if last else 0])
        if flow is not None and flow.one_step:
            yield each, flow


def _median_curves(rows: np.ndarray | None) -> list[np.ndarray]:
    """The median curve of each bootstrap sample of the answers, from the curves (A, K) of all answers."""
    assert rows is not None
    some = rows[:: 1 + len(rows) // _MAX_CURVES]
    median = np.nanmedian(rows, axis=0)
    samples = [_resample(some, seed) for seed in range(_SAMPLES)]
    # Lags without a value in a sample have the median of all answers.
    missing = [np.where(np.isnan(each).all(0), median, np.nan) for each in samples]
    return [np.nanmedian(np.vstack([each, row]), 0) for each, row in zip(samples, missing, strict=True)]


def _resample(rows: np.ndarray, seed: int) -> np.ndarray:
    """A bootstrap sample of the rows."""
    return rows[np.random.default_rng(seed).integers(len(rows), size=len(rows))]
