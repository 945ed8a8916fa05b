"""The measures behind the findings: each yields effects of one study, with their spread over passages."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from glassgate.glass import spread
from glassgate.glass.figures import count, percent, quoted, steps
from glassgate.glass.followers import GROUND, PLACE, closest, correlations, labelled, marks
from glassgate.glass.gradients import reach
from glassgate.glass.study import Cause, Direction, Flow, Lapse, Study

# A state that moves less than this, in standard deviations over all steps, is constant.
DEAD_DEVIATION = 0.005
# Two states correlated as closely as this, in value and in change, are twins.
TWIN_CORRELATION = 0.985
# A gate closed, or open, at this fraction of the steps is stuck.
STUCK = 0.98
# Gradients that reach further than this do not vanish.
SHORT_REACH = 30
# A gradient explodes if it is larger than at lag 0 at this lag or beyond.
_FAR = 5
# Correlations over fewer steps than this are not shown as findings.
_LEAST_STEPS = 20
# A passage with fewer answers shows no spread.
_FEW = 8
# Long half-lives count as this many steps.
_LONGEST = 2.0**20
# The number of times that text is put in another order, and of answers that are resampled in a gradient's curve.
_ORDERS = 40
_CURVES = 100
_RESAMPLED_CURVES = 20


class Effect(NamedTuple):
    """The size of an effect.

    Attributes:
        key: names it, alike in every study of the same network
        value: larger is stronger
        low: the lower end of its interval over passages
        words: for the rule's sentence
        null: its size under the rule's null model where the study itself has it
        unit: the direction's label and the unit that it is about, if any
    """

    key: str
    value: float
    low: float
    words: dict[str, str]
    null: float = 0.0
    unit: tuple[str, int] | None = None


def answers(study: Study) -> Iterator[Effect]:
    """Fraction of right answers; of sets, their mean F1 score."""
    said = [each for passage in study.passages for each in passage.said if each.right is not None]
    if not said:
        return
    sets = any(each.agreement is not None for each in said)
    scores = np.array([float(each.right or 0) if each.agreement is None else each.agreement for each in said])
    known = [sum(each.right is not None for each in passage.said) for passage in study.passages]
    low, high = spread.of_mean(scores, spread.groups(known))
    targets = [each.target[0] for each in said if each.target]
    commonest = max(set(targets), key=lambda each: (targets.count(each), each))
    null = other_order(targets) if sets else targets.count(commonest) / len(targets)
    of_set = f"The predicted sets share {percent(float(scores.mean()))} of their members with the right ones (F1)"
    right = sum(bool(each.right) for each in said)
    words = {
        "right": of_set if sets else f"{right} of {len(said)} answers are right ({percent(right / len(said))})",
        "null": "the right sets of other steps" if sets else f"always “{commonest}”",
        "nulled": percent(null),
        "high": percent(high),
    }
    yield Effect("answers", float(scores.mean()), low, words, null)


def no_better(study: Study) -> Iterator[Effect]:
    """The fraction of right answers by which the null model is ahead."""
    for each in answers(study):
        known = [said for passage in study.passages for said in passage.said if said.right is not None]
        if len(known) >= 20:
            lead = each.null - each.value
            yield Effect("no_better", lead, lead, each.words)


def other_order(sets: list[str]) -> float:
    """The mean F1 score of sets, members separated by blanks, against each other in another order."""
    halves = zip(sets, sets[len(sets) // 2 :] + sets[: len(sets) // 2], strict=True)
    return float(np.mean([agreement(set(a.split()), set(b.split())) for a, b in halves]))


def agreement(found: set[str], right: set[str]) -> float:
    """The F1 score of a set against the right one.

    Example:
        >>> agreement({"60", "64"}, {"60", "67"}), agreement(set(), set())
        (0.5, 1.0)
    """
    return 2 * len(found & right) / (len(found) + len(right)) if found or right else 1.0


def following(study: Study) -> Iterator[Effect]:
    """Absolute correlation of a unit's state with a label, a property of the text or a channel."""
    if study.directions and (labelled(study) or not any(p.said for p in study.passages) or _free_marks(study)):
        for label, effect in _followers(study).items():
            if label != PLACE:
                yield effect


def counting(study: Study) -> Iterator[Effect]:
    """Absolute correlation of a unit's state with the number of the step."""
    effect = _followers(study).get(PLACE)
    if effect is not None:
        yield effect


def _followers(study: Study) -> dict[str, Effect]:
    number = spread.groups([len(each.steps) for each in study.passages])
    best: dict[str, Effect] = {}
    for direction in study.directions:
        found = [each for each in closest(study, direction) if each.label not in GROUND]
        if not found or len(number) < _LEAST_STEPS:
            continue
        things = marks(study, direction)
        chance = _in_other_orders(direction, np.stack([things[each.label] for each in found], 1))
        for place, each in enumerate(found):
            values = direction.values[each.state][:, each.unit].astype(float)
            interval = spread.of_correlation(values, things[each.label], number)
            words = {
                "unit": str(each.unit),
                "direction": each.direction,
                "label": each.label,
                "r": f"{each.correlation:.2f}",
            }
            null = math.nan if each.label == PLACE else _z(float(chance[place]))
            effect = Effect(
                f"{each.label}",
                _z(each.correlation),
                _z(interval.low),
                words,
                0.0 if math.isnan(null) else null,
                (each.direction, each.unit),
            )
            if each.label not in best or effect.value > best[each.label].value:
                best[each.label] = effect
    return best


def _in_other_orders(direction: Direction, marked: np.ndarray) -> np.ndarray:
    """The largest correlation of any unit with each mark, (M,), the marks moved in time by many distances."""
    shifts = np.linspace(0.1, 0.9, _ORDERS) * len(marked)
    return np.max([correlations(direction, np.roll(marked, int(k), 0)).max(0) for k in shifts], 0)


def _free_marks(study: Study) -> bool:
    """Whether the marks come from the text or the series, and not from the model's own answers."""
    return not any(said.step is not None and said.best[0][1] is not None for p in study.passages for said in p.said)


def _z(correlation: float) -> float:
    return math.atanh(min(max(correlation, 0.0), 0.99999))


def worth(study: Study) -> Iterator[Effect]:
    """Loss added when a direction of a layer with two is held at its mean."""
    if not study.loss:
        return
    ways = [each for each in study.causes if each.name.endswith((".forward", ".reverse"))]
    layers = [each.name.rsplit(".", 1)[0] for each in ways]
    for each, layer in zip(ways, layers, strict=True):
        if layers.count(layer) == 2:
            words = {"name": each.name, "worth": lost(study, each), "loss": f"{each.loss:.3g}", "unit": study.unit}
            scale = study.loss
            yield Effect(each.name, each.loss / scale, each.low / scale, words, max(0.0, each.control / scale))


def unread(study: Study) -> Iterator[Effect]:
    """Gradient at lag 0 of the other direction over that of this one."""
    tops = [each for each in study.directions if each.label.rsplit(".", 1)[0] == _top(study)]
    if len(tops) != 2:
        return
    for each, other in (tops, tops[::-1]):
        of, beside = each.flow.get(each.states[0]), other.flow.get(other.states[0])
        if of is None or beside is None:
            continue
        ratio, before = _ratio(beside.each, of.each), 0.0
        if of.before is not None and beside.before is not None:
            before = _ratio(beside.before, of.before)
        words = {"direction": each.label, "other": other.label}
        yield Effect(each.label, ratio, ratio, words, max(0.0, before))


def _ratio(over: np.ndarray, under: np.ndarray) -> float:
    first, second = float(np.nanmedian(over[:, 0])), float(np.nanmedian(under[:, 0]))
    return math.log10(first / second) if first > 0 < second else 0.0 if not first else 9.0


def _top(study: Study) -> str:
    return study.directions[-1].label.rsplit(".", 1)[0] if study.directions else ""


def stretch(study: Study) -> Iterator[Effect]:
    """Loss added when all states are held for the most important window."""
    if not study.loss or len(study.lapses) < 4:
        return
    most = max(study.lapses, key=lambda each: each.loss)
    if len(study.passages[most.passage].said) < _FEW:
        return
    others = [each.loss for each in study.lapses if each is not most]
    passage = study.passages[most.passage]
    text = "".join(passage.steps[most.start : most.stop]).strip() if passage.series is None else ""
    words = {
        "window": _window(study, most),
        "worth": lost(study, most),
        "loss": f"{most.loss:.3g}",
        "unit": study.unit,
        "text": f", {quoted(text[:30])}," if text else "",
    }
    null = max(most.control, 2 * float(np.quantile(others, 0.75)), 0.0)
    yield Effect("stretch", most.loss / study.loss, most.low / study.loss, words, null / study.loss)


def _window(study: Study, each: Lapse) -> str:
    where = f" of sequence {each.passage + 1}" if len(study.passages) > 1 else ""
    if each.stop - each.start == 1:
        return f"Step {each.stop}{where} matters"
    return f"Steps {each.start + 1} to {each.stop}{where} matter"


def lost(study: Study, each: Cause | Lapse) -> str:
    """A loss in words: in points where answers are right or wrong.

    Example:
        >>> study = Study("", "", [], [], unit="nats an answer", points="points of accuracy")
        >>> lost(study, Cause("layer0", 0.3352, 4.18)), lost(study, Cause("layer0", 0.3352, None))
        ('4.2 points of accuracy', '0.335 nats an answer')
    """
    points = each.points is not None and each.points >= 1
    return f"{each.points:.1f} {study.points}" if points else f"{each.loss:.3g} {study.unit}"


def open_gates(study: Study) -> Iterator[Effect]:
    """Fraction of a forget gate's values above 0.9."""
    for each in study.directions:
        for gate in each.forgets:
            by_step = (each.values[gate] > 0.9).mean(1)
            value = float(by_step.mean())
            words = {"percent": percent(value), "gates": _gates(gate), "direction": each.label}
            yield Effect(f"{each.label}.{gate}", value, spread.of_mean(by_step, _groups(study)).low, words)


def lasting(study: Study) -> Iterator[Effect]:
    """Half-life of the longest-lived unit."""
    longest = max((len(each.steps) for each in study.passages), default=0)
    for each in study.directions:
        for state, values in each.half_life.items():
            finite = np.where(values > 0, np.minimum(values, _LONGEST), 1e-3)
            unit = int(np.argmax(finite))
            kept = int((values > longest).sum())
            words = {
                "units": f"{count(kept, 'unit', 'units')} of {each.label} {'keeps' if kept == 1 else 'keep'}",
                "state": state,
                "longest": str(longest),
                "unit": str(unit),
                "half_life": steps(float(values[unit])),
            }
            value = math.log2(finite[unit])
            yield Effect(f"{each.label}.{state}", value, value, words, math.log2(max(longest, 1)), (each.label, unit))


def vanishing(study: Study) -> Iterator[Effect]:
    """Lags until the gradient is under 1 %: those before training over those after it."""
    for each in study.directions:
        flow = each.flow.get(each.states[-1])
        if flow is None or not flow.one_step or flow.initial is None:
            continue
        before = reach(flow.lags, flow.initial) or flow.lags[-1]
        after = reach(flow.lags, flow.trained[0])
        if after is None or not 0 < after <= SHORT_REACH:
            continue

        def shortness(curve: np.ndarray, flow: Flow = flow) -> float:
            return -math.log2(max(1, reach(flow.lags, curve) or flow.lags[-1]))

        words = {"direction": each.label, "reach": steps(after), "before": steps(before)}
        low = math.log2(before) + _of_curves(flow, shortness).low
        yield Effect(each.label, math.log2(before / after), low, words)


def exploding(study: Study) -> Iterator[Effect]:
    """Norm of the gradient at lag 5 or beyond over that at lag 0."""
    for each in study.directions:
        flow = each.flow.get(each.states[0])
        if flow is None or not flow.one_step or flow.lags[-1] < _FAR:
            continue
        far = np.array(flow.lags) >= _FAR

        def grown(curve: np.ndarray, far: np.ndarray = far) -> float:
            peak, start = float(np.nanmax(curve[far])), float(curve[0])
            return math.log10(peak / start) if peak > 0 and start > 0 else 0.0

        value = grown(flow.trained[0])
        words = {"direction": each.label, "times": f"{10**value:.3g}", "lag": steps(flow.lags[-1])}
        null = 0.0 if flow.initial is None else max(0.0, grown(flow.initial))
        yield Effect(each.label, value, _of_curves(flow, grown).low, words, null)


def _of_curves(flow: Flow, measure: Callable[[np.ndarray], float]) -> spread.Interval:
    """The interval of a measure of the median curve, over resampled answers."""
    rows = flow.each[:: 1 + len(flow.each) // _CURVES]
    if len(rows) < 2:
        value = measure(flow.trained[0])
        return spread.Interval(value, value)
    random = np.random.default_rng(0)
    drawn = [rows[random.integers(len(rows), size=len(rows))] for _ in range(_RESAMPLED_CURVES)]
    there = [np.where(np.isnan(each).all(0), flow.trained[0], np.nan) for each in drawn]
    curves = [np.nanmedian(np.vstack([each, row]), 0) for each, row in zip(drawn, there, strict=True)]
    return spread.interval(np.array([measure(curve) for curve in curves]))


def stuck(study: Study) -> Iterator[Effect]:
    """Fraction of units whose gate is closed, or open, at 98 % of the steps or more."""
    for each in study.directions:
        for word in ("closed", "open"):
            found = {}
            for gate, saturation in each.saturation.items():
                if each.kinds[gate] == "gate":
                    values = (saturation.low if word == "closed" else saturation.high).numpy()
                    found[gate] = (values >= STUCK).mean(), int(np.argmax(values))
            if not found:
                continue
            gate = max(found, key=lambda name: found[name][0])
            others = [name for name, (value, _) in found.items() if value >= 0.1 and name != gate]
            words = {
                "gate": gate,
                "direction": each.label,
                "percent": percent(found[gate][0]),
                "word": word,
                "others": f" So are many of {' and '.join(others)}." if others else "",
            }
            value = float(found[gate][0])
            yield Effect(f"{each.label}.{word}", value, value, words, 0.0, (each.label, found[gate][1]))


def dead(study: Study) -> Iterator[Effect]:
    """Fraction of units whose output is constant."""
    for each in study.directions:
        values = each.values[each.states[0]]
        none = np.flatnonzero(values.std(0) < DEAD_DEVIATION)
        if len(values) < 2:
            continue
        units = "All units" if len(none) == values.shape[1] else count(len(none), "unit", "units")
        verb = "does" if len(none) == 1 else "do"
        words = {
            "units": f"{units} of {each.label} {verb}",
            "which": ", ".join(map(str, none[:6])) + (" and others" if len(none) > 6 else ""),
        }
        fraction = len(none) / values.shape[1]
        yield Effect(each.label, fraction, fraction, words, 0.0, (each.label, int(none[0])) if len(none) else None)


def twins(study: Study) -> Iterator[Effect]:
    """Fraction of units that rise and fall with another one, in value and in change."""
    for each in study.directions:
        values = each.values[each.states[0]].astype(np.float64)
        alive = np.flatnonzero(values.std(0) >= DEAD_DEVIATION)
        if len(values) < 20 or len(alive) < 2:
            continue
        together = np.abs(np.corrcoef(values[:, alive].T)) >= TWIN_CORRELATION
        with np.errstate(invalid="ignore", divide="ignore"):
            together &= np.abs(np.corrcoef(np.diff(values[:, alive], axis=0).T)) >= TWIN_CORRELATION
        first, second = np.nonzero(np.triu(together, 1))
        pairs = [f"{alive[a]} and {alive[b]}" for a, b in zip(first[:3], second[:3], strict=True)]
        words = {
            "pairs": f"{count(len(first), 'pair of units', 'pairs of units')} of {each.label} "
            f"{'is' if len(first) == 1 else 'are'} twins",
            "which": ", ".join(pairs) + (" and others" if len(first) > 3 else ""),
        }
        fraction = len(set(second)) / values.shape[1]
        unit = (each.label, int(alive[first[0]])) if len(first) else None
        yield Effect(each.label, fraction, fraction, words, 0.0, unit)


def overfitting(study: Study) -> Iterator[Effect]:
    """Rise of the dev loss from its best to its last value, relative to its fall before that."""
    rows = [row for row in study.training if "dev_loss" in row]
    if len(rows) < 3:
        return
    losses = np.array([row["dev_loss"] for row in rows])
    best = int(losses.argmin())
    fall, rise = float(losses[0] - losses[best]), float(losses[-1] - losses[best])
    noise = float(np.median(np.abs(np.diff(losses, 2)))) if len(losses) > 4 else 0.0
    scale = max(fall, 0.1 * float(losses[0]), 1e-9)
    words = {
        "best": f"{losses[best]:.3g}",
        "step": f"{rows[best]['step']:.0f}",
        "last": f"{losses[-1]:.3g}",
        "train": f"{rows[-1]['train_loss']:.3g}" if "train_loss" in rows[-1] else "less",
    }
    yield Effect("overfitting", rise / scale, (rise - noise) / scale, words)


def _groups(study: Study) -> np.ndarray:
    return spread.groups([len(each.steps) for each in study.passages])


def _gates(name: str) -> str:
    return {"f": "forget gates", "z": "update gates"}.get(name, f"gates {name}")
