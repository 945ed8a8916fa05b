"""Gradients: a direction that the answers do not read, gradients that vanish, gradients that explode."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from glassgate.glass import spread
from glassgate.glass.effects.effect import Effect
from glassgate.glass.figures import steps
from glassgate.glass.gradients import reach
from glassgate.glass.spread import Interval
from glassgate.glass.study import Direction, Flow, Study

# Gradients that reach further than this do not vanish.
SHORT_REACH = 30
# A gradient explodes if it is larger than at lag 0 at this lag or beyond.
_FAR = 5
# The number of answers that are resampled in a gradient's curve, and how often.
_CURVES = 100
_RESAMPLED = 20
# The ratio, in powers of ten, of a gradient to one that is zero.
_MOST = 9.0


def unread(study: Study) -> Iterator[Effect]:
    """Gradient at lag 0 of the other direction over that of this one."""
    top = study.directions[-1].label.rsplit(".", 1)[0] if study.directions else ""
    tops = [each for each in study.directions if each.label.rsplit(".", 1)[0] == top]
    if len(tops) != 2:
        return
    for each, other in (tops, tops[::-1]):
        of, beside = each.flow.get(each.states[0]), other.flow.get(other.states[0])
        if of is None or beside is None:
            continue
        before = 0.0 if of.before is None or beside.before is None else _ratio(beside.before[:, 0], of.before[:, 0])

        def interval(over: np.ndarray = beside.each[:, 0], under: np.ndarray = of.each[:, 0]) -> Interval:
            drawn = [_drawn(over, seed) for seed in range(_RESAMPLED)], [_drawn(under, s) for s in range(_RESAMPLED)]
            return spread.interval(np.array([_ratio(*pair) for pair in zip(*drawn, strict=True)]))

        words = {"direction": each.label, "other": other.label}
        yield Effect(each.label, _ratio(beside.each[:, 0], of.each[:, 0]), interval, words, max(0.0, before))


def _ratio(over: np.ndarray, under: np.ndarray) -> float:
    """The ratio of two medians, in powers of ten."""
    first, second = float(np.nanmedian(over)), float(np.nanmedian(under))
    return math.log10(first / second) if first > 0 < second else 0.0 if not first else _MOST


def vanishing(study: Study) -> Iterator[Effect]:
    """Lags until the gradient is under 1 %: those before training over those after it."""
    for each, flow in _flows(study, last=True):
        if flow.initial is None:
            continue
        after, before = reach(flow.lags, flow.trained[0]), reach(flow.lags, flow.initial) or flow.lags[-1]
        if after is None or not 0 < after <= SHORT_REACH:
            continue

        def interval(flow: Flow = flow) -> Interval:
            def reached(curve: np.ndarray) -> float:
                return math.log2(max(1, reach(flow.lags, curve) or flow.lags[-1]))

            first = np.array([reached(curve) for curve in _curves(flow.before)])
            return spread.interval(first - np.array([reached(curve) for curve in _curves(flow.each)]))

        words = {"direction": each.label, "reach": steps(after), "before": steps(before)}
        yield Effect(each.label, math.log2(before / after), interval, words)


def exploding(study: Study) -> Iterator[Effect]:
    """Norm of the gradient at lag 5 or beyond over that at lag 0."""
    for each, flow in _flows(study, last=False):
        if flow.lags[-1] < _FAR:
            continue
        far = np.array(flow.lags) >= _FAR

        def grown(curve: np.ndarray, far: np.ndarray = far) -> float:
            peak, start = float(np.nanmax(curve[far])), float(curve[0])
            return math.log10(peak / start) if peak > 0 and start > 0 else 0.0

        def interval(flow: Flow = flow, grown: Callable[[np.ndarray], float] = grown) -> Interval:
            return spread.interval(np.array([grown(curve) for curve in _curves(flow.each)]))

        value = grown(flow.trained[0])
        words = {"direction": each.label, "times": f"{10**value:.3g}", "lag": steps(flow.lags[-1])}
        null = 0.0 if flow.initial is None else max(0.0, grown(flow.initial))
        yield Effect(each.label, value, interval, words, null)


def _flows(study: Study, last: bool) -> Iterator[tuple[Direction, Flow]]:
    """The gradients of each direction's last state, or of its output, if every answer reads one step only."""
    for each in study.directions:
        flow = each.flow.get(each.states[-1 if last else 0])
        if flow is not None and flow.one_step:
            yield each, flow


def _curves(rows: np.ndarray | None) -> list[np.ndarray]:
    """The median curves of resampled answers, from the curves (A, K) of all."""
    assert rows is not None
    some = rows[:: 1 + len(rows) // _CURVES]
    median = np.nanmedian(rows, axis=0)
    drawn = [_drawn(some, seed) for seed in range(_RESAMPLED)]
    there = [np.where(np.isnan(each).all(0), median, np.nan) for each in drawn]
    return [np.nanmedian(np.vstack([each, row]), 0) for each, row in zip(drawn, there, strict=True)]


def _drawn(rows: np.ndarray, seed: int) -> np.ndarray:
    """As many rows as there are, drawn with replacement."""
    return rows[np.random.default_rng(seed).integers(len(rows), size=len(rows))]
