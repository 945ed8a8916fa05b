"""Units that follow a mark: a label, a property of the text, a channel, or the number of the step."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from glassgate.glass import spread
from glassgate.glass.controls import CONTROLS, MANY_CONTROLS
from glassgate.glass.effects.effect import Effect, by_passage
from glassgate.glass.followers import GROUND, PLACE, Follower, closest, correlations, labelled, marks
from glassgate.glass.spread import Interval
from glassgate.glass.study import Direction, Study

# Correlations over fewer steps than this are not shown as findings.
_LEAST_STEPS = 20
# The number of times that the text is put in another order, and the quantile of the correlations found in these.
_ORDERS = 40
_CHANCE = 0.95


def following(study: Study) -> Iterator[Effect]:
    """Absolute correlation of a unit's state with a label, a property of the text or a channel."""
    if study.directions and (labelled(study) or not any(p.said for p in study.passages) or _of_text_alone(study)):
        yield from _strongest(study, lambda label: label != PLACE and label not in GROUND)


def draw_controls(study: Study, rule: str) -> None:
    """Compare with more networks with fresh weights: the best of many units and marks varies between networks.

    Args:
        study: its `nulls` get the correlations of the new networks
        rule: the name of the rule
    """
    if study.control is None or len(study.nulls[rule]) > CONTROLS:
        return
    for number in range(CONTROLS, MANY_CONTROLS):
        best: dict[str, float] = {}
        for direction in study.control(number):
            for each in closest(study, direction):
                best[each.label] = max(best.get(each.label, 0.0), _z(each.correlation))
        study.nulls[rule].append(best)


def counting(study: Study) -> Iterator[Effect]:
    """Absolute correlation of a unit's state with the number of the step."""
    yield from _strongest(study, lambda label: label == PLACE)


def _strongest(study: Study, wanted: Callable[[str], bool]) -> Iterator[Effect]:
    """The effect of the unit that follows each wanted mark most closely."""
    best: dict[str, Effect] = {}
    for direction in study.directions if study.starts[-1] >= _LEAST_STEPS else ():
        found, things = [each for each in closest(study, direction) if wanted(each.label)], marks(study, direction)
        if not found:
            continue
        chance = _in_other_orders(direction, {each.label: things[each.label] for each in found})
        for each in found:
            effect = _effect(study, direction, each, things[each.label], chance[each.label])
            if each.label not in best or effect.value > best[each.label].value:
                best[each.label] = effect
    yield from best.values()


def _effect(study: Study, direction: Direction, found: Follower, mark: np.ndarray, chance: float) -> Effect:
    def interval() -> Interval:
        values = direction.values[found.state][:, found.unit].astype(float)
        low, high = spread.of_correlation(values, mark, by_passage(study))
        return Interval(_z(low), _z(high))

    words = {
        "unit": str(found.unit),
        "direction": found.direction,
        "label": found.label,
        "r": f"{found.correlation:.2f}",
    }
    return Effect(found.label, _z(found.correlation), interval, words, _z(chance), (found.direction, found.unit))


def _in_other_orders(direction: Direction, marked: dict[str, np.ndarray]) -> dict[str, float]:
    """The correlation of the closest unit with each mark (S,) that chance exceeds in 5 % of other orders.

    An order is the mark moved in time by one of many distances, so that it keeps its own runs. The number of the step
    keeps its slope, too: it has no other order.
    """
    every = np.stack(list(marked.values()), 1)
    moved = [np.roll(every, int(k * len(every)), 0) for k in np.linspace(0.1, 0.9, _ORDERS)]
    found = correlations(direction, np.concatenate(moved, 1)).max(0).reshape(_ORDERS, -1)
    chance = dict(zip(marked, np.quantile(found, _CHANCE, axis=0).tolist(), strict=True))
    return {label: 0.0 if label == PLACE else value for label, value in chance.items()}


def _of_text_alone(study: Study) -> bool:
    """Whether the marks come from the text or the series, and not from the model's own answers."""
    return not any(said.step is not None and said.best[0][1] is not None for p in study.passages for said in p.said)


def _z(correlation: float) -> float:
    return math.atanh(min(max(correlation, 0.0), 0.99999))
