"""The section Dynamics of a report: how long small differences of the state survive, and the fixed points."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from glassgate.glass.dynamics import Dynamics, Points
from glassgate.glass.effects.dynamics import exponent_interval, time_constant
from glassgate.glass.elements import Section, figure_element, for_each_direction
from glassgate.glass.figures import Figure
from glassgate.glass.findings import RULES, significant
from glassgate.glass.gradients import VANISHED, vanishing_lag
from glassgate.glass.study import Direction, Study
from glassgate.glass.svg import Axis, Plot
from glassgate.glass.wording import count, percent, steps

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
        verdict = (
            "At least one of these measures differs from the untrained networks by more than its threshold, as the "
            "findings state."
            if each.label in different
            else "No measure differs from the untrained networks by more than its threshold."
        )
        table = f'<div class="scroll" tabindex="0">{_table(each.dynamics, untrained)}</div>'
        plots = figure_element(_survival_figure(each.dynamics, untrained, limits)) + _points_element(each.dynamics)
        return f'<div class="measures">{table}<p class="source">{verdict}</p></div>{plots}'

    key = (
        '<p class="key"><span><i class="flow"></i>trained: median and 10 to 90 % over windows</span> '
        '<span><i class="before"></i>untrained networks</span></p>'
    )
    intro = (
        "Each layer and direction is analysed as a dynamical system and compared with untrained networks, in windows "
        "of its inputs. The plot shows the fraction of a small random difference of the state that is left after k "
        "steps. The largest Lyapunov exponent is the mean change of the logarithm of this fraction per step, in the "
        "second half of a window. At a fixed point, the state does not change while the input is constant. The "
        "constant input is the mean input. Source: Sussillo and Barak 2013 and Vogt et al. 2020."
    )
    body = for_each_direction(study, block, "row dynamics")
    return Section("dynamics", "Dynamics", intro, body and key + body)


def _untrained_dynamics(study: Study, label: str) -> list[Dynamics]:
    return [each.dynamics for network in study.controls for each in network if each.label == label and each.dynamics]


def _table(trained: Dynamics, untrained: Sequence[Dynamics]) -> str:
    over = f"over {len(trained.survival)}"
    rows = [
        _row("largest Lyapunov exponent, nats per step", _exponent_text(trained), list(map(_exponent, untrained))),
        _row("time constant, steps", _number(_time_constant(trained)), list(map(_time_constant, untrained))),
        _row(
            "steps until less than 1 % is left",
            _number_or(over, _horizon(trained)),
            list(map(_horizon, untrained)),
            over,
        ),
    ]
    if trained.points is not None:
        compared = untrained if trained.points.has_several_stable else []
        untrained_points = [each.points for each in compared if each.points is not None]
        rows += [
            _row(name, _number_or(_NONE, measure(trained.points)), list(map(measure, untrained_points)))
            for name, measure in _POINT_MEASURES.items()
        ]
    head = '<th></th><th class="num">trained</th><th class="num">untrained</th>'
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(name: str, trained: str, untrained: Sequence[float | None], unknown: str = _NONE) -> str:
    known = [each for each in untrained if each is not None]
    ends = dict.fromkeys(map(_number, (min(known), max(known)))) if known else [unknown]
    return f'<tr><th>{name}</th><td class="num">{trained}</td><td class="num">{" to ".join(ends)}</td></tr>'


def _exponent(dynamics: Dynamics) -> float:
    return float(dynamics.exponents.mean())


def _time_constant(dynamics: Dynamics) -> float:
    return time_constant(_exponent(dynamics))


def _exponent_text(dynamics: Dynamics) -> str:
    if len(dynamics.exponents) < 2:
        return _number(_exponent(dynamics))
    return f"{_number(_exponent(dynamics))} ({' to '.join(map(_number, exponent_interval(dynamics)))})"


_POINT_MEASURES: dict[str, Callable[[Points], float | None]] = {
    "fixed points": lambda points: len(points.stable),
    "stable fixed points": lambda points: int(points.stable.sum()),
    "longest time constant of a stable point, steps": lambda points: points.longest_time_constant,
}


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
        return "infinite"
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
    sentence = (
        f"Less than 1 % of a small difference is left after {steps(horizon)}"
        if horizon
        else f"{percent(float(median[-1]))} of a small difference is left after {steps(last)}"
    )
    sentence += f" (median of {count(trained.survival.shape[1], 'window', 'windows')})."
    untrained_horizons = [_horizon(each) for each in untrained]
    if untrained:
        known = [each for each in untrained_horizons if each is not None]
        if known:
            sentence += f" In untrained networks, less than 1 % is left after {_range_of_steps(known)}."
        if len(known) < len(untrained):
            number = f"{len(untrained) - len(known)} of {len(untrained)} untrained networks"
            sentence += f" In {number}, more than 1 % is left at the end."
    end, bottom, top = limits
    plot = Plot(Axis(0, end, "steps k", whole=True), Axis(bottom, top, "fraction left", log=True), 490, 280, sentence)
    if bottom < VANISHED:
        plot.rule(0, VANISHED, end, VANISHED)
        plot.text(end, VANISHED, "1 %", anchor="end", up=4)
    for each in untrained:
        plot.line(lags, _above(each.survival_quantiles[0], bottom), "before")
    plot.band(lags, low.tolist(), high.tolist(), "flow")
    plot.line(lags, _above(median, bottom), "flow")
    return Figure(plot.svg(), sentence)


def _range_of_steps(counts: list[int]) -> str:
    first, last = min(counts), max(counts)
    return steps(last) if first == last else f"{first} to {steps(last)}"


def _above(curve: np.ndarray, bottom: float) -> list[float]:
    """Replace values below the bottom of the plot by NaN, so that the curve ends there."""
    return np.where(curve < bottom, np.nan, curve).tolist()


def _points_element(trained: Dynamics) -> str:
    if trained.points is None:
        return (
            f'<p class="source">Fixed points are not shown, because the search is slow for {trained.size} state '
            "variables. <code>gg.dynamics.fixed_points</code> finds them.</p>"
        )
    return figure_element(_plane_figure(trained.points))


def _plane_figure(points: Points) -> Figure:
    stable = int(points.stable.sum())
    sentence = (
        f"{count(len(points.stable), 'fixed point', 'fixed points')} under the mean input: {stable} stable (filled)"
    )
    if points.longest_time_constant is not None:
        sentence += f", the longest time constant {steps(points.longest_time_constant)}"
    sentence += f". The plane contains {percent(float(points.explained.sum()))} of the variance of the visited states."
    every = np.concatenate([points.visited.reshape(-1, 2), points.coordinates])
    (left, bottom), (right, top) = every.min(0), every.max(0)
    margin = 0.08 * max(right - left, top - bottom, 1e-6)
    kinds = (("unstable", ~points.stable), ("stable", points.stable))
    legend = [("path", "visited states"), *((f"dot {kind}", f"{kind} point") for kind, chosen in kinds if chosen.any())]
    plot = Plot(
        Axis(left - margin, right + margin, "first principal component of the states"),
        Axis(bottom - margin, top + margin, "second principal component"),
        490,
        280,
        sentence,
        legend=legend,
    )
    for path in points.visited.transpose(1, 2, 0):
        x, y = path.tolist()
        plot.line(x, y, "path")
    for kind, chosen in kinds:
        x, y = points.coordinates[chosen].T.tolist()
        plot.dots(x, y, kind, 5, units=False)
    return Figure(plot.svg(), sentence)
