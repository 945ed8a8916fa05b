"""Effects of units and gates over all steps: dead units, twins, stuck and open gates, units with a long half-life."""

import math
from collections.abc import Iterator

import numpy as np

from glassgate.glass import bootstrap
from glassgate.glass.bootstrap import Interval
from glassgate.glass.effects.effect import Effect, by_passage
from glassgate.glass.measures import CLOSED, OPEN
from glassgate.glass.study import Direction, Study
from glassgate.glass.wording import count, percent, steps

# A state whose standard deviation over all steps is below this is constant.
DEAD_DEVIATION = 0.005
# Two states with at least this correlation, in value and in change, are twins.
TWIN_CORRELATION = 0.985
# A gate that is closed, or open, at this fraction of the steps is stuck.
STUCK = 0.98
# The minimum number of steps for a comparison of units.
_MIN_STEPS = 20
# The maximum half-life in steps.
_MAX_HALF_LIFE = 2.0**20
# Another gate is named if at least this fraction of its units is stuck.
_MANY = 0.1


def dead(study: Study) -> Iterator[Effect]:
    """Fraction of units whose output is constant."""
    for each in study.directions:
        values = each.values[each.states[0]].astype(np.float64)
        none = np.flatnonzero(values.std(0) < DEAD_DEVIATION)
        if len(values) < 2:
            continue

        def interval(values: np.ndarray = values) -> Interval:
            deviations = bootstrap.deviations(values, by_passage(study))
            return bootstrap.interval((deviations < DEAD_DEVIATION).mean(1))

        units = "All units" if len(none) == values.shape[1] else count(len(none), "unit", "units")
        verb = "does" if len(none) == 1 else "do"
        words = {
            "units": f"{units} of {each.label} {verb}",
            "which": ", ".join(map(str, none[:6])) + (" and others" if len(none) > 6 else ""),
        }
        unit = (each.label, int(none[0])) if len(none) else None
        yield Effect(each.label, len(none) / values.shape[1], interval, words, 0.0, unit)


def twins(study: Study) -> Iterator[Effect]:
    """Fraction of units that are correlated with another unit, in value and in change."""
    for each in study.directions:
        values = each.values[each.states[0]].astype(np.float64)
        alive = np.flatnonzero(values.std(0) >= DEAD_DEVIATION)
        if len(values) < _MIN_STEPS or len(alive) < 2:
            continue
        together = np.abs(np.corrcoef(values[:, alive].T)) >= TWIN_CORRELATION
        with np.errstate(invalid="ignore", divide="ignore"):
            together &= np.abs(np.corrcoef(np.diff(values[:, alive], axis=0).T)) >= TWIN_CORRELATION
        first, second = (alive[units] for units in np.nonzero(np.triu(together, 1)))

        def interval(values: np.ndarray = values, first: np.ndarray = first, second: np.ndarray = second) -> Interval:
            units, place = np.unique(second, return_index=True)
            return _twins_among(values, by_passage(study), first[place], units)

        pairs = [f"{a} and {b}" for a, b in zip(first[:3], second[:3], strict=True)]
        words = {
            "pairs": f"{count(len(first), 'pair of units', 'pairs of units')} of {each.label} "
            f"{'behaves' if len(first) == 1 else 'behave'} alike",
            "which": ", ".join(pairs) + (" and others" if len(first) > 3 else ""),
        }
        unit = (each.label, int(first[0])) if len(first) else None
        yield Effect(each.label, len(set(second)) / values.shape[1], interval, words, 0.0, unit)


def _twins_among(values: np.ndarray, number: np.ndarray, first: np.ndarray, second: np.ndarray) -> Interval:
    """The interval of the fraction of units that are twins, from one pair for each of these units."""
    change = np.diff(values, axis=0)
    alike = bootstrap.correlations(values[:, first], values[:, second], number) >= TWIN_CORRELATION
    alike &= bootstrap.correlations(change[:, first], change[:, second], number[1:]) >= TWIN_CORRELATION
    return bootstrap.interval(alike.sum(1) / values.shape[1])


def stuck(study: Study) -> Iterator[Effect]:
    """Fraction of units whose gate is closed, or open, at 98 % of the steps or more."""
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
            others = [name for name, (value, _) in by_gate.items() if value >= _MANY and name != gate]
            words = {
                "gate": gate,
                "direction": each.label,
                "percent": percent(by_gate[gate][0]),
                "word": word,
                "others": f" Many units of {' and '.join(others)} are, too." if others else "",
            }

            def interval(each: Direction = each, gate: str = gate, word: str = word) -> Interval:
                values = each.values[gate]
                saturated = values < CLOSED if word == "closed" else values > OPEN
                return bootstrap.interval((bootstrap.means(saturated, by_passage(study)) >= STUCK).mean(1))

            value, unit = by_gate[gate]
            yield Effect(f"{each.label}.{word}", float(value), interval, words, 0.0, (each.label, unit))


def open_gates(study: Study) -> Iterator[Effect]:
    """Fraction of a forget gate's values above 0.9."""
    for each in study.directions:
        for gate in each.forget_gates:
            by_step = (each.values[gate] > OPEN).mean(1)

            def interval(by_step: np.ndarray = by_step) -> Interval:
                return bootstrap.of_mean(by_step, by_passage(study))

            value = float(by_step.mean())
            words = {"percent": percent(value), "gates": _gates(gate), "direction": each.label}
            yield Effect(f"{each.label}.{gate}", value, interval, words)


def _gates(name: str) -> str:
    return {"f": "forget gates", "z": "update gates"}.get(name, f"gates {name}")


def lasting(study: Study) -> Iterator[Effect]:
    """Half-life of the longest-lived unit."""
    longest = max((len(each.steps) for each in study.passages), default=0)
    for each in study.directions:
        for state, values in each.half_life.items():
            finite = np.where(values > 0, np.minimum(values, _MAX_HALF_LIFE), 1e-3)
            unit = int(np.argmax(finite))

            def interval(left: np.ndarray = each.left[state][0], unit: int = unit) -> Interval:
                return _half_life(left[:, unit], by_passage(study))

            kept = int((values > longest).sum())
            words = {
                "units": f"{count(kept, 'unit', 'units')} of {each.label} {'keeps' if kept == 1 else 'keep'}",
                "state": state,
                "longest": str(longest),
                "unit": str(unit),
                "half_life": steps(float(values[unit])),
            }
            null = math.log2(max(longest, 1))
            yield Effect(f"{each.label}.{state}", math.log2(finite[unit]), interval, words, null, (each.label, unit))


def _half_life(left: np.ndarray, number: np.ndarray) -> Interval:
    """The interval of the log2 of a unit's half-life in steps, from the fraction (S,) that each step keeps."""
    logs = np.log(np.maximum(np.abs(left.astype(np.float64)), 1e-300))
    means = np.minimum(bootstrap.means(logs, number), math.log(0.5) / _MAX_HALF_LIFE)
    return bootstrap.interval(np.log2(math.log(0.5) / means))
