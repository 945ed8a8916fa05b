"""What a study shows, in sentences with numbers: one rule a finding, its thresholds beside it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from glassgate.glass.figures import GONE, count, percent, steps
from glassgate.glass.followers import GROUND, PLACE, follows
from glassgate.glass.study import Cause, Direction, Lapse, Study, reach

# A state that moves less than this, in standard deviations over all steps, does nothing.
DEAD_DEVIATION = 0.005
# Two states that go together as closely as this hold the same.
TWIN_CORRELATION = 0.985
# A gate that is closed, or open, for so much of the time is no gate.
STUCK_SHARE = 0.98
# So many of the units with a stuck gate are worth a sentence.
STUCK_UNITS = 0.1
# Gates that stand open in so much of all steps remember by default.
OPEN_SHARE = 0.25
# A gradient that has gone within so many steps does not learn from what came before them.
SHORT_REACH = 30
# A gradient that has grown so much on its way back explodes.
GROWN = 10.0
# A unit that goes with a label as closely as this follows it.
FOLLOWS = 0.7
# A loss on dev data so much above that in training has learned the training data by heart.
OVERFITTED = 1.3
# Units whose half-life is so many times the longest sequence keep all they ever saw.
FOREVER = 1.0


class Finding(NamedTuple):
    """One sentence.

    Attributes:
        section: the plot that shows it
        sentence: what was found, with its number
        meaning: what that means, and what one may do
        fault: whether it is something to look after
        unit: the direction's label and the unit that it is about, if it is about one
    """

    section: str
    sentence: str
    meaning: str
    fault: bool = False
    unit: tuple[str, int] | None = None


def findings(study: Study) -> list[Finding]:
    """All that the rules find: faults first, then the rest, each in the rules' order."""
    found = [each for rule in RULES for each in rule(study)]
    return [each for each in found if each.fault] + [each for each in found if not each.fault]


def _right(study: Study) -> Iterator[Finding]:
    said = [each for passage in study.passages for each in passage.said if each.best[0][1] is not None]
    known = [each.right for each in said if each.right is not None]
    if known:
        yield Finding(
            "text",
            f"{sum(known)} of {len(known)} answers are right ({percent(float(np.mean(known)))}).",
            "On what this page shows; the run's own scores stand under Training.",
        )


def _following(study: Study) -> Iterator[Finding]:
    best = [each for each in follows(study) if each.correlation >= FOLLOWS and each.label not in (PLACE, *GROUND)]
    for each in best[:2]:
        yield Finding(
            "text",
            f"Unit {each.unit} of {each.direction} follows “{each.label}” (correlation {each.correlation:.2f}).",
            "One number of the network stands for it; choose the unit and watch the text.",
            unit=(each.direction, each.unit),
        )


def _open(study: Study) -> Iterator[Finding]:
    for each in study.directions:
        for gate in _forget_gates(each):
            share = float(each.saturation[gate].high.mean())
            if share >= OPEN_SHARE:
                yield Finding(
                    "saturation",
                    f"{percent(share)} of the {_gate(gate)} of {each.label} stand above 0.9.",
                    "These units carry what they hold on from step to step: the network's long memory.",
                )


def _dead(study: Study) -> Iterator[Finding]:
    for each in study.directions:
        values = each.values[each.states[0]]
        dead = np.flatnonzero(values.std(0) < DEAD_DEVIATION)
        if len(values) > 1 and len(dead):
            yield Finding(
                "gates",
                f"{count(len(dead), 'unit', 'units')} of {each.label} {'does' if len(dead) == 1 else 'do'} nothing: "
                f"{_some(dead)}.",
                f"Their output moves by less than {DEAD_DEVIATION:g} over all steps; a smaller hidden size may do.",
                True,
                (each.label, int(dead[0])),
            )


def _twins(study: Study) -> Iterator[Finding]:
    for each in study.directions:
        values = each.values[each.states[0]]
        alive = np.flatnonzero(values.std(0) >= DEAD_DEVIATION)
        if len(values) < 20 or len(alive) < 2:
            continue
        correlation = np.corrcoef(values[:, alive].T)
        first, second = np.nonzero(np.triu(np.abs(correlation) >= TWIN_CORRELATION, 1))
        if len(first):
            pairs = [f"{alive[a]} and {alive[b]}" for a, b in zip(first[:3], second[:3], strict=True)]
            yield Finding(
                "gates",
                f"{count(len(first), 'pair of units', 'pairs of units')} of {each.label} "
                f"{'is' if len(first) == 1 else 'are'} twins: {', '.join(pairs)}{', ...' if len(first) > 3 else ''}.",
                f"They rise and fall together (correlation above {TWIN_CORRELATION:g}): one of the two would do.",
                True,
                (each.label, int(alive[first[0]])),
            )


def _stuck(study: Study) -> Iterator[Finding]:
    for each in study.directions:
        for gate, saturation in each.saturation.items():
            if each.kinds[gate] != "gate":
                continue
            for values, word in ((saturation.low, "closed"), (saturation.high, "open")):
                stuck = np.flatnonzero(values.numpy() >= STUCK_SHARE)
                if len(stuck) >= max(1, STUCK_UNITS * len(values)):
                    yield Finding(
                        "saturation",
                        f"The gate {gate} of {each.label} is stuck {word} in {len(stuck)} of {len(values)} units.",
                        f"They are {word} in {percent(STUCK_SHARE)} of the steps or more: no gradient passes a "
                        "saturated gate, and nothing is decided there. A smaller bias, or a lower learning rate, keeps "
                        "gates alive.",
                        True,
                        (each.label, int(stuck[0])),
                    )


def _vanishing(study: Study) -> Iterator[Finding]:
    # Several answers about the whole, as a translation's units, reach states at any step straight away: no lag there.
    if any(sum(said.step is None for said in each.said) > 1 for each in study.passages):
        return
    for each in study.directions:
        state = each.states[-1]
        flow = each.flow.get(state)
        if flow is None:
            continue
        lag = reach(flow.lags, flow.trained[0], GONE)
        if lag is not None and 0 < lag <= SHORT_REACH:
            before = None if flow.initial is None else reach(flow.lags, flow.initial, GONE)
            was = f" ({steps(before)} at initialisation)" if before else ""
            yield Finding(
                "flow",
                f"The gradient of {each.label} is under 1 % after {steps(lag)}{was}.",
                "What lies further back than that hardly changes the answer, and hardly teaches the network.",
            )
        peak = float(np.nanmax(flow.trained[0]) / flow.trained[0][0]) if flow.trained[0][0] else 0.0
        if peak >= GROWN:
            yield Finding(
                "flow",
                f"The gradient of {each.label} grows to {peak:.0f} times its start on its way back.",
                "It explodes: training needs clipping, and its steps are at the mercy of single examples.",
                True,
            )


def _memory(study: Study) -> Iterator[Finding]:
    longest = max(len(each.steps) for each in study.passages)
    for each in study.directions:
        for state, values in each.half_life.items():
            unit = int(np.argmax(values))
            kept = int((values > FOREVER * longest).sum())
            if kept:
                yield Finding(
                    "memory",
                    f"{count(kept, 'unit', 'units')} of {each.label} {'keeps' if kept == 1 else 'keep'} half of "
                    f"{state} for longer than the {longest} steps of the longest sequence.",
                    f"Unit {unit} for {steps(float(values[unit]))}: what it counts or marks does not fade by itself.",
                    unit=(each.label, unit),
                )


def _learned_by_heart(study: Study) -> Iterator[Finding]:
    rows = [row for row in study.training if "dev_loss" in row and "train_loss" in row]
    if len(rows) > 1 and rows[-1]["dev_loss"] > OVERFITTED * rows[-1]["train_loss"]:
        best = min(rows, key=lambda row: row["dev_loss"])
        yield Finding(
            "training",
            f"The loss is {rows[-1]['dev_loss']:.3g} on dev data and {rows[-1]['train_loss']:.3g} in training.",
            f"Dev data was best at step {best['step']:.0f}: from there on the network learned its examples by heart. "
            "More dropout, fewer units or more data help.",
            True,
        )


def _causes(study: Study) -> Iterator[Finding]:
    ways = [each for each in study.causes if each.name.endswith((".forward", ".reverse"))]
    layers = {each.name.rsplit(".", 1)[0] for each in ways}
    for each in ways if len(ways) > len(layers) else study.causes[:1]:
        yield Finding(
            "causes",
            f"{each.name} is worth {worth(study, each)}.",
            f"Held at its mean over these steps, while all else goes on, it costs {each.loss:.3g} {study.unit}.",
        )


def _lapses(study: Study) -> Iterator[Finding]:
    if len(study.lapses) < 2 or max(each.loss for each in study.lapses) <= 0:
        return
    most = max(study.lapses, key=lambda each: each.loss)
    passage = study.passages[most.passage]
    words = "".join(passage.steps[most.start : most.stop]).strip() if passage.series is None else ""
    there = f", “{words[:30]}”," if words else ""
    yield Finding(
        "causes",
        f"{_stretch(study, most)} most: {worth(study, most)}.",
        f"All states held at their means there{there} cost {most.loss:.3g} {study.unit}.",
    )


def _stretch(study: Study, each: Lapse) -> str:
    where = f" of sequence {each.passage + 1}" if len(study.passages) > 1 else ""
    if each.stop - each.start == 1:
        return f"Step {each.stop}{where} matters"
    return f"Steps {each.start + 1} to {each.stop}{where} matter"


def worth(study: Study, each: Cause | Lapse) -> str:
    """What is lost, in words: in points where answers are right or wrong.

    Example:
        >>> study = Study("", "", [], [], unit="nats an answer", points="points of accuracy")
        >>> worth(study, Cause("layer0", 0.3352, 4.18)), worth(study, Cause("layer0", 0.3352, None))
        ('4.2 points of accuracy', '0.335 nats an answer')
    """
    return f"{each.loss:.3g} {study.unit}" if each.points is None else f"{each.points:.1f} {study.points}"


RULES: tuple[Callable[[Study], Iterator[Finding]], ...] = (
    _right,
    _following,
    _causes,
    _lapses,
    _open,
    _memory,
    _vanishing,
    _stuck,
    _dead,
    _twins,
    _learned_by_heart,
)


def _forget_gates(direction: Direction) -> list[str]:
    """The gates that are what a step leaves of a state."""
    found = []
    for left, direct in direction.left.values():
        for name, kind in direction.kinds.items():
            same = direct and kind == "gate" and name in direction.saturation
            if same and np.allclose(direction.values[name], left, atol=1e-4):
                found.append(name)
    return found


def _gate(name: str) -> str:
    return {"f": "forget gates", "z": "update gates"}.get(name, f"gates {name}")


def _some(units: np.ndarray, most: int = 6) -> str:
    return ", ".join(map(str, units[:most])) + (", ..." if len(units) > most else "")
