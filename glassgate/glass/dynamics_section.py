"""The section Dynamics of a report: how long small differences of the state survive, and the fixed points."""

import math
from collections.abc import Sequence

import numpy as np

from glassgate.glass.dynamics import Dynamics, Points, time_constant
from glassgate.glass.effects.dynamics import exponent_interval
from glassgate.glass.elements import Section, figure_element, for_each_direction, scrolled_table
from glassgate.glass.figures import Figure
from glassgate.glass.findings import RULES, significant
from glassgate.glass.gradients import VANISHED, vanishing_lag
from glassgate.glass.languages import say, sentences
from glassgate.glass.study import Direction, Study
from glassgate.glass.svg import Axis, Plot
from glassgate.glass.wording import percent, steps

_NONE = "\N{EN DASH}"
# The smallest fraction that the plot of the survival shows.
_LOWEST = 1e-6


def dynamics_section(study: Study) -> Section:
    """The section Dynamics: the exponent, the survival of differences and the fixed points of each direction."""
    limits = _survival_range(study)
    different = {each.key for rule in RULES if rule.section == "dynamics" for each, *_ in significant(study, rule)}

    def block(each: Direction) -> str:
        if each.dynamics is None:
            return ""
        untrained = _untrained_dynamics(study, each.label)
        verdict = say("dynamics.differs") if each.label in different else say("dynamics.no_difference")
        table = _table(each.dynamics, untrained)
        plots = figure_element(_survival_figure(each.dynamics, untrained, limits)) + _points_element(each.dynamics)
        return f'<div class="measures">{table}<p class="source">{verdict}</p></div>{plots}'

    key = (
        f'<p class="key"><span><i class="flow"></i>{say("dynamics.trained_line")}</span> '
        f'<span><i class="before"></i>{say("dynamics.untrained_line")}</span></p>'
    )
    body = for_each_direction(study, block, "row dynamics")
    return Section("dynamics", say("dynamics.title"), say("dynamics.intro"), body and key + body)


def _untrained_dynamics(study: Study, label: str) -> list[Dynamics]:
    return [each.dynamics for network in study.controls for each in network if each.label == label and each.dynamics]


def _table(trained: Dynamics, untrained: Sequence[Dynamics]) -> str:
    over = say("words.over", amount=len(trained.survival))
    rows = [
        _row(say("dynamics.exponent"), _exponent_text(trained), [each.exponent for each in untrained]),
        _row(
            say("dynamics.time_constant"),
            _number(time_constant(trained.exponent)),
            [time_constant(each.exponent) for each in untrained],
        ),
        _row(say("dynamics.horizon"), _number_or(over, _horizon(trained)), list(map(_horizon, untrained)), over),
    ]
    if (points := trained.points) is not None:
        compared = untrained if points.stable_count > 1 else []
        others = [each.points for each in compared if each.points is not None]
        longest = _number_or(_NONE, points.longest_time_constant)
        rows += [
            _row(say("dynamics.points"), _number(len(points.stable)), [len(each.stable) for each in others]),
            _row(say("dynamics.stable_points"), _number(points.stable_count), [each.stable_count for each in others]),
            _row(say("dynamics.longest_time_constant"), longest, [each.longest_time_constant for each in others]),
        ]
    head = f'<th></th><th class="num">{say("dynamics.trained")}</th><th class="num">{say("dynamics.untrained")}</th>'
    return scrolled_table(head, "".join(rows))


def _row(name: str, trained: str, untrained: Sequence[float | None], unknown: str = _NONE) -> str:
    known = [each for each in untrained if each is not None]
    between = _range_text(_number(min(known)), _number(max(known))) if known else unknown
    return f'<tr><th>{name}</th><td class="num">{trained}</td><td class="num">{between}</td></tr>'


def _range_text(low: str, high: str) -> str:
    return low if low == high else say("words.range", low=low, high=high)


def _exponent_text(dynamics: Dynamics) -> str:
    if len(dynamics.exponents) < 2:
        return _number(dynamics.exponent)
    interval = exponent_interval(dynamics)
    between = say("words.range", low=_number(interval.low), high=_number(interval.high))
    return say("words.with_interval", number=_number(dynamics.exponent), interval=between)


def _horizon(dynamics: Dynamics) -> int | None:
    """The number of steps after which less than 1 % of a difference is left; None if more is left at the end."""
    return vanishing_lag(range(len(dynamics.survival_quantiles[0])), dynamics.survival_quantiles[0])


def _number_or(unknown: str, value: float | None) -> str:
    return unknown if value is None else _number(value)


def _number(value: float) -> str:
    """A number with two significant digits, or an integer from 100 on.

    Example:
        >>> _number(0.1234), _number(3), _number(1234.5), _number(float("inf"))
        ('0.12', '3', '1,234', 'infinite')
    """
    if math.isinf(value):
        return say("words.infinite")
    words = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"
    return words.replace("-", "\N{MINUS SIGN}")


def _survival_range(study: Study) -> tuple[int, float, float]:
    """The last lag and the range of the fractions that are left, over all directions on the page."""
    trained = [each for run in study.on_page for each in run.directions]
    networks = [each for run in study.on_page for network in run.controls for each in network]
    tables = [each.dynamics.survival_quantiles for each in (*trained, *networks) if each.dynamics]
    values = np.concatenate([np.ones(1), *map(np.ravel, tables)])
    values = values[np.isfinite(values)]
    bottom = 10 ** math.floor(math.log10(max(_LOWEST, min(0.1, float(values.min())))))
    last = max((table.shape[1] - 1 for table in tables), default=1)
    return last, bottom, max(1.0, 10 ** math.ceil(math.log10(float(values.max()))))


def _survival_figure(trained: Dynamics, untrained: Sequence[Dynamics], limits: tuple[int, float, float]) -> Figure:
    lags, (median, low, high) = list(range(trained.survival_quantiles.shape[1])), trained.survival_quantiles
    horizon, last = _horizon(trained), lags[-1]
    windows, left = trained.survival.shape[1], percent(float(median[-1]))
    known = [each for each in map(_horizon, untrained) if each is not None]
    beyond, total = len(untrained) - len(known), len(untrained)
    sentence = sentences(
        say("dynamics.vanishes", steps=steps(horizon), windows=windows)
        if horizon
        else say("dynamics.remains", percent=left, steps=steps(last), windows=windows),
        say("dynamics.untrained_vanish", steps=_range_of_steps(known)) if known else "",
        say("dynamics.untrained_remain", count=beyond, total=total) if beyond else "",
    )
    end, bottom, top = limits
    x, y = Axis(0, end, say("axis.steps_k"), whole=True), Axis(bottom, top, say("dynamics.fraction"), log=True)
    plot = Plot(x, y, 490, 280, sentence)
    if bottom < VANISHED:
        plot.rule(0, VANISHED, end, VANISHED)
        plot.text(end, VANISHED, say("number.percent", number=f"{100 * VANISHED:g}"), anchor="end", up=4)
    for each in untrained:
        plot.line(lags, _above(each.survival_quantiles[0], bottom), "before")
    plot.band(lags, low.tolist(), high.tolist(), "flow")
    plot.line(lags, _above(median, bottom), "flow")
    return Figure(plot.svg(), sentence)


def _range_of_steps(counts: list[int]) -> str:
    first, last = min(counts), max(counts)
    return steps(last) if first == last else say("words.range", low=first, high=steps(last))


def _above(curve: np.ndarray, bottom: float) -> list[float]:
    """Replace values below the bottom of the plot by NaN, so that the curve ends there."""
    return np.where(curve < bottom, np.nan, curve).tolist()


def _points_element(trained: Dynamics) -> str:
    if trained.points is None:
        return f'<p class="source">{say("dynamics.no_points", size=trained.size)}</p>'
    return figure_element(_plane_figure(trained.points))


def _plane_figure(points: Points) -> Figure:
    longest = points.longest_time_constant
    sentence = sentences(
        say("dynamics.plane", count=len(points.stable), stable=points.stable_count),
        "" if longest is None else say("dynamics.plane_longest", steps=steps(longest)),
        say("dynamics.plane_variance", percent=percent(float(points.explained.sum()))),
    )
    every = np.concatenate([points.visited.reshape(-1, 2), points.coordinates])
    (left, bottom), (right, top) = every.min(0), every.max(0)
    margin = 0.08 * max(right - left, top - bottom, 1e-6)
    kinds = (
        ("unstable", say("dynamics.unstable_point"), ~points.stable),
        ("stable", say("dynamics.stable_point"), points.stable),
    )
    legend = [("path", say("dynamics.visited")), *((f"dot {kind}", name) for kind, name, some in kinds if some.any())]
    plot = Plot(
        Axis(left - margin, right + margin, say("dynamics.first_component")),
        Axis(bottom - margin, top + margin, say("dynamics.second_component")),
        490,
        280,
        sentence,
        legend=legend,
    )
    for path in points.visited.transpose(1, 2, 0):
        x, y = path.tolist()
        plot.line(x, y, "path")
    for kind, _, chosen in kinds:
        x, y = points.coordinates[chosen].T.tolist()
        plot.dots(x, y, kind, 5)
    return Figure(plot.svg(), sentence)
