"""Effects of units and gates: dead units, twins, stuck gates, open forget gates and long half-lives."""

import math
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from glassgate.engines.retention import NotDerivable, memory_of
from glassgate.glass import bootstrap
from glassgate.glass.bootstrap import Interval
from glassgate.glass.effects.effect import Effect, passage_groups
from glassgate.glass.languages import listed, listed_with_and, say
from glassgate.glass.measures import CLOSED, OPEN
from glassgate.glass.study import Direction, Study
from glassgate.glass.wording import percent, steps

# A state whose standard deviation over all steps is below this is constant.
DEAD_DEVIATION = 0.005
# Two states with at least this correlation, in value and in change, are twins.
TWIN_CORRELATION = 0.985
# A gate is stuck if it is closed, or open, at this fraction of the steps or more.
STUCK = 0.98
# The minimum number of steps for a statement about units. The states of a few steps are alike by chance.
_MIN_STEPS = 20
# The minimum number of steps at which a gate can be called stuck: fewer steps cannot distinguish 98 % from all steps.
_MIN_STUCK_STEPS = round(1 / (1 - STUCK))
# The maximum half-life in steps.
_MAX_HALF_LIFE = 2.0**20
# Besides the gate with the most stuck units, the sentence names gates with at least this fraction of stuck units.
_MANY_STUCK = 0.1


def dead(study: Study) -> Iterator[Effect]:
    """Fraction of units whose output is constant."""
    for each in study.directions:
        values = each.values[each.states[0]].astype(np.float64)
        constant = np.flatnonzero(values.std(0) < DEAD_DEVIATION)
        if len(values) < _MIN_STEPS:
            continue

        def interval(values: np.ndarray = values) -> Interval:
            deviations = bootstrap.deviations(values, passage_groups(study))
            return bootstrap.interval((deviations < DEAD_DEVIATION).mean(1))

        number, which = len(constant), listed(list(map(str, constant[:6])))
        words: dict[str, object] = {
            "units": say("words.all_units") if number == values.shape[1] else say("words.units", count=number),
            "direction": each.label,
            "count": number,
            "which": say("words.and_others", first=which) if number > 6 else which,
            "limit": f"{DEAD_DEVIATION:g}",
        }
        unit = (each.label, int(constant[0])) if len(constant) else None
        yield Effect(each.label, len(constant) / values.shape[1], interval, words, 0.0, unit)


def twins(study: Study) -> Iterator[Effect]:
    """Fraction of units that are correlated with another unit, both in value and in change from step to step."""
    for each in study.directions:
        values = each.values[each.states[0]].astype(np.float64)
        alive = np.flatnonzero(values.std(0) >= DEAD_DEVIATION)
        if len(values) < _MIN_STEPS or len(alive) < 2:
            continue
        correlation = np.asarray(np.corrcoef(values[:, alive].T))
        together = np.abs(correlation) >= TWIN_CORRELATION
        with np.errstate(invalid="ignore", divide="ignore"):
            together &= np.abs(np.corrcoef(np.diff(values[:, alive], axis=0).T)) >= TWIN_CORRELATION
        is_opposite = correlation[np.nonzero(np.triu(together, 1))] < 0
        first, second = (alive[units] for units in np.nonzero(np.triu(together, 1)))

        def interval(values: np.ndarray = values, first: np.ndarray = first, second: np.ndarray = second) -> Interval:
            units, first_index = np.unique(second, return_index=True)
            return _twins_interval(values, passage_groups(study), first[first_index], units)

        pairs = [
            say("words.pair", first=a, second=b, opposite=say("words.opposite") if opposite else "")
            for a, b, opposite in zip(first[:3], second[:3], is_opposite[:3], strict=True)
        ]
        words = {
            "count": len(first),
            "direction": each.label,
            "which": say("words.and_others", first=listed(pairs)) if len(first) > 3 else listed(pairs),
            "limit": f"{TWIN_CORRELATION:g}",
        }
        unit = (each.label, int(first[0])) if len(first) else None
        yield Effect(each.label, len(set(second)) / values.shape[1], interval, words, 0.0, unit)


def _twins_interval(values: np.ndarray, groups: np.ndarray, first: np.ndarray, second: np.ndarray) -> Interval:
    """The interval of the fraction of units that are twins.

    Args:
        values: the states (S, H).
        groups: the resampling group of each step, (S,).
        first, second: the units of each pair. Each unit in `second` occurs once.
    """
    change = np.diff(values, axis=0)
    alike = np.abs(bootstrap.correlations(values[:, first], values[:, second], groups)) >= TWIN_CORRELATION
    alike &= np.abs(bootstrap.correlations(change[:, first], change[:, second], groups[1:])) >= TWIN_CORRELATION
    return bootstrap.interval(alike.sum(1) / values.shape[1])


def stuck(study: Study) -> Iterator[Effect]:
    """Fraction of units whose gate is closed, or open, at 98 % of the steps or more."""
    if study.starts[-1] < _MIN_STUCK_STEPS:
        return
    for each in study.directions:
        for word in ("closed", "open"):
            by_gate = {}
            for gate, saturation in each.saturation.items():
                if each.kinds[gate] == "gate":
                    values = (saturation.low if word == "closed" else saturation.high).numpy()
                    by_gate[gate] = (values >= STUCK).mean(), int(np.argmax(values))
            if not by_gate:
                continue
            gate = max(by_gate, key=lambda name: by_gate[name][0])
            others = [name for name, (value, _) in by_gate.items() if value >= _MANY_STUCK and name != gate]
            also = say("finding.stuck_gates.also", gates=listed_with_and(others)) if others else ""
            words: dict[str, object] = {
                "gate": gate,
                "direction": each.label,
                "percent": percent(by_gate[gate][0]),
                "side": say("words.closed") if word == "closed" else say("words.open"),
                "others": say("words.between_sentences") + also if also else "",
                "limit": percent(STUCK),
            }

            def interval(each: Direction = each, gate: str = gate, word: str = word) -> Interval:
                values = each.values[gate]
                saturated = values < CLOSED if word == "closed" else values > OPEN
                return bootstrap.interval((bootstrap.means(saturated, passage_groups(study)) >= STUCK).mean(1))

            value, unit = by_gate[gate]
            yield Effect(f"{each.label}.{word}", float(value), interval, words, 0.0, (each.label, unit))


def open_gates(study: Study) -> Iterator[Effect]:
    """Fraction of the values at which a forget gate keeps more than 0.9."""
    if study.starts[-1] < _MIN_STEPS:
        return
    for each in study.directions:
        gates = each.keeping_gates
        for gate, keeps in gates.items():
            by_step = (each.values[gate] > OPEN if keeps else each.values[gate] < CLOSED).mean(1)

            def interval(by_step: np.ndarray = by_step) -> Interval:
                return bootstrap.mean_interval(by_step, passage_groups(study))

            value = float(by_step.mean())
            words: dict[str, object] = {
                "percent": percent(value),
                "gates": _gate_words(each, gate) + (f" {gate}" if len(gates) > 1 else ""),
                "direction": each.label,
                "limit": say("words.above", value=f"{OPEN:g}") if keeps else say("words.below", value=f"{CLOSED:g}"),
            }
            yield Effect(f"{each.label}.{gate}", value, interval, words)


def _gate_words(direction: Direction, gate: str) -> str:
    """The name of a kind of gate. An update gate, such as z of a GRU, also scales the update of the state."""
    with suppress(NotDerivable):
        coupled = gate in memory_of(direction.cell, direction.sizes[1]).coupled
        return say("words.update_gates") if coupled else say("words.forget_gates")
    return say("words.keeping_gates")


def lasting(study: Study) -> Iterator[Effect]:
    """Half-life of the longest-lived unit."""
    longest = max((len(each.steps) for each in study.passages), default=0)
    for each in study.directions:
        for state, values in each.half_life.items():
            finite = np.where(values > 0, np.minimum(values, _MAX_HALF_LIFE), 1e-3)
            unit = int(np.argmax(finite))

            def interval(retained: np.ndarray = each.retained[state][0], unit: int = unit) -> Interval:
                return _half_life_interval(retained[:, unit], passage_groups(study))

            keeping = int((values > longest).sum())
            words: dict[str, object] = {
                "count": keeping,
                "direction": each.label,
                "state": state,
                "longest": str(longest),
                "unit": str(unit),
                "half_life": steps(float(values[unit])),
            }
            null = math.log2(max(longest, 1))
            yield Effect(f"{each.label}.{state}", math.log2(finite[unit]), interval, words, null, (each.label, unit))


def _half_life_interval(retained: np.ndarray, groups: np.ndarray) -> Interval:
    """The interval of the log2 of a unit's half-life. `retained`, (S,): the fraction of its state that a step keeps."""
    logs = np.log(np.maximum(np.abs(retained.astype(np.float64)), 1e-300))
    means = np.minimum(bootstrap.means(logs, groups), math.log(0.5) / _MAX_HALF_LIFE)
    return bootstrap.interval(np.log2(math.log(0.5) / means))
