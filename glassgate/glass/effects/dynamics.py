"""Effects of the dynamics: differences of the state that last or grow, and several stable fixed points."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from glassgate.glass import bootstrap
from glassgate.glass.bootstrap import Interval
from glassgate.glass.dynamics import MAX_TIME_CONSTANT, Dynamics, time_constant
from glassgate.glass.effects.effect import Effect
from glassgate.glass.languages import say
from glassgate.glass.study import Direction, Study
from glassgate.glass.wording import steps

# The minimum number of windows for an estimate of the spread.
_MIN_WINDOWS = 4


def lasting_differences(study: Study) -> Iterator[Effect]:
    """Time constant of small differences of the state: minus one over the largest Lyapunov exponent."""
    for each, dynamics in _directions_with_windows(study):
        constant = time_constant(dynamics.exponent)
        lasts = say("words.over", amount=steps(constant)) if constant == MAX_TIME_CONSTANT else steps(constant)
        yield Effect(
            each.label,
            math.log2(constant),
            partial(_constant_interval, dynamics),
            {"direction": each.label, "steps": lasts},
        )


def _constant_interval(dynamics: Dynamics) -> Interval:
    return Interval(*(math.log2(time_constant(end)) for end in exponent_interval(dynamics)))


def growing_differences(study: Study) -> Iterator[Effect]:
    """Largest Lyapunov exponent."""
    for each, dynamics in _directions_with_windows(study):
        words = {"direction": each.label, "percent": f"{100 * math.expm1(dynamics.exponent):.0f}"}
        yield Effect(each.label, dynamics.exponent, partial(exponent_interval, dynamics), words)


def stable_points(study: Study) -> Iterator[Effect]:
    """Number of stable fixed points under the mean input, if there are several."""
    for each in study.directions:
        points = each.dynamics and each.dynamics.points
        if points and (number := points.stable_count) > 1:
            words = {"direction": each.label, "count": str(number)}
            yield Effect(each.label, number, partial(Interval, number, number), words)


def exponent_interval(dynamics: Dynamics) -> Interval:
    """The interval of the mean exponent over windows."""
    return bootstrap.mean_interval(dynamics.exponents, np.arange(len(dynamics.exponents)))


def _directions_with_windows(study: Study) -> Iterator[tuple[Direction, Dynamics]]:
    """The directions with enough windows."""
    for each in study.directions:
        if each.dynamics is not None and len(each.dynamics.exponents) >= _MIN_WINDOWS:
            yield each, each.dynamics
