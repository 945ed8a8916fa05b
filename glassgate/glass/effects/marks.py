"""Effects of units that follow a mark: a label, a property of the text, a channel of a series or the step number."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from glassgate.glass import bootstrap
from glassgate.glass.bootstrap import Interval
from glassgate.glass.controls import CONTROLS, MANY_CONTROLS
from glassgate.glass.effects.effect import Effect, passage_groups
from glassgate.glass.followers import (
    BACKGROUND,
    Follower,
    correlations,
    followers_in,
    marks,
    marks_are_targets,
    step_number,
)
from glassgate.glass.languages import say
from glassgate.glass.study import Direction, Study
from glassgate.glass.wording import fixed

# Correlations over fewer steps than this are not shown as findings.
_MIN_STEPS = 20
# The number of copies of each mark that are shifted in time.
_SHIFTS = 40
# The correlation by chance is this quantile of the correlations with the shifted copies.
_CHANCE_QUANTILE = 0.95


def following(study: Study) -> Iterator[Effect]:
    """Absolute correlation of a unit's state with a label, a property of the text or a channel."""
    if study.directions and (
        marks_are_targets(study) or not any(p.answers for p in study.passages) or _marks_are_of_input(study)
    ):
        yield from _strongest(study, lambda mark: mark != step_number() and mark not in BACKGROUND)


def add_controls(study: Study, rule: str) -> None:
    """Add untrained networks to the null model, because the largest of many correlations varies between networks.

    Args:
        study: the correlations of the new networks are added to its `nulls`
        rule: the name of the rule
    """
    if study.make_control is None or len(study.nulls[rule]) > CONTROLS:
        return
    for number in range(CONTROLS, MANY_CONTROLS):
        best: dict[str, float] = {}
        for direction in study.make_control(number):
            for each in followers_in(study, direction):
                best[each.mark] = max(best.get(each.mark, 0.0), _fisher_z(abs(each.correlation)))
        study.nulls[rule].append(best)


def counting(study: Study) -> Iterator[Effect]:
    """Absolute correlation of a unit's state with the number of the step."""
    yield from _strongest(study, lambda mark: mark == step_number())


def _strongest(study: Study, is_selected: Callable[[str], bool]) -> Iterator[Effect]:
    """For each selected mark, the effect of the unit with the highest correlation.

    Args:
        study: the study.
        is_selected: whether the mark with this name is selected.
    """
    best: dict[str, Effect] = {}
    for direction in study.directions if study.starts[-1] >= _MIN_STEPS else ():
        followers = [each for each in followers_in(study, direction) if is_selected(each.mark)]
        by_name = marks(study, direction)
        if not followers:
            continue
        chance = _chance_correlations(direction, {each.mark: by_name[each.mark] for each in followers})
        for each in followers:
            effect = _effect(study, direction, each, by_name[each.mark], chance[each.mark])
            if each.mark not in best or effect.value > best[each.mark].value:
                best[each.mark] = effect
    yield from best.values()


def _effect(study: Study, direction: Direction, follower: Follower, mark_values: np.ndarray, chance: float) -> Effect:
    def interval() -> Interval:
        values = direction.values[follower.state][:, follower.unit].astype(float)
        low, high = bootstrap.correlation_interval(values, mark_values, passage_groups(study))
        return Interval(_fisher_z(low), _fisher_z(high))

    words: dict[str, object] = {
        "unit": str(follower.unit),
        "direction": follower.direction,
        "label": follower.mark,
        "r": fixed(follower.correlation),
        "opposite": say("words.opposite") if follower.correlation < 0 else "",
        "down": say("words.down") if follower.correlation < 0 else "",
    }
    return Effect(
        follower.mark,
        _fisher_z(abs(follower.correlation)),
        interval,
        words,
        _fisher_z(chance),
        (follower.direction, follower.unit),
    )


def _chance_correlations(direction: Direction, by_name: dict[str, np.ndarray]) -> dict[str, float]:
    """For each mark (S,), an estimate of the highest correlation that any unit reaches by chance.

    It is the 95th percentile over copies of the mark that are rotated in time by different distances. Rotation keeps
    runs of equal values. The estimate for the step number is 0, because its rotated copies have the same slope.
    """
    columns = np.stack(list(by_name.values()), 1)
    shifted = [np.roll(columns, int(k * len(columns)), 0) for k in np.linspace(0.1, 0.9, _SHIFTS)]
    highest = np.abs(correlations(direction, np.concatenate(shifted, 1))).max(0).reshape(_SHIFTS, -1)
    chance = dict(zip(by_name, np.quantile(highest, _CHANCE_QUANTILE, axis=0).tolist(), strict=True))
    return {name: 0.0 if name == step_number() else value for name, value in chance.items()}


def _marks_are_of_input(study: Study) -> bool:
    """Whether the marks are properties of the text or the series, not answers of the model."""
    return not any(
        answer.step is not None and answer.best[0][1] is not None for p in study.passages for answer in p.answers
    )


def _fisher_z(correlation: float) -> float:
    return math.atanh(min(max(correlation, 0.0), 0.99999))
