"""The findings of a report: a table of rules, each with a sentence, a measure, a null model and a threshold.

A null model is a model without the structure in question, such as an untrained network. A rule gives a finding if the
lower end of an effect's bootstrap interval exceeds the threshold. The threshold is the effect under the null model plus
a minimum excess. The modules in `effects` compute the measures.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from glassgate.glass.effects import answers, dynamics, flow, marks, units
from glassgate.glass.effects.effect import Effect
from glassgate.glass.study import Study
from glassgate.glass.wording import rounded

# The null models, in words.
UNTRAINED = "untrained networks"
TARGETS = "shuffled targets"
ORDER = "labels shifted in time, and many untrained networks"
NO_NULL_MODEL = "none: the log is the evidence"
GUESS = "the most common answer; for sets, the correct sets of other steps"
BEFORE = "the same network before training"


class Rule(NamedTuple):
    """A kind of finding.

    Attributes:
        name: the name of the rule
        section: the section of the report that shows it
        sentence: a template. The words of an effect replace the names in braces
        meaning: a template of the consequence or the remedy
        measure: yields the effects of a study
        null: the null model in words
        min_excess: the minimum excess over the effect under the null model, in the unit of the measure
        minimum: the minimum of the threshold, for any null model
        unit: the unit of the measure in words
        fault: whether the finding is a fault that should be repaired
        max_findings: the maximum number of findings of this rule. The strongest are kept
    """

    name: str
    section: str
    sentence: str
    meaning: str
    measure: Callable[[Study], Iterator[Effect]]
    null: str
    min_excess: float
    minimum: float = -np.inf
    unit: str = ""
    fault: bool = False
    max_findings: int = 99


RULES = (
    Rule(
        "no better than a guess",
        "text",
        "{right}, no better than guessing {guess} ({guess_score}).",
        "On these steps, the network answers as if it had not read them.",
        answers.no_better,
        GUESS,
        -0.01,
        unit="fraction of the answers",
        fault=True,
    ),
    Rule(
        "overfitting",
        "training",
        "The dev loss rose from {best} at step {step} to {last} at the end.",
        "The training loss is {train} at the end. After step {step} the network memorised its examples. More dropout, "
        "fewer units or more data help.",
        answers.overfitting,
        NO_NULL_MODEL,
        0.05,
        0.05,
        "fraction of the fall of the dev loss",
        True,
    ),
    Rule(
        "exploding gradient",
        "flow",
        "The gradient of {direction} grows to {times} times its norm at lag 0 within {lag}.",
        "Training needs gradient clipping. Without it, single examples dominate the updates.",
        flow.exploding,
        BEFORE,
        0.5,
        1.0,
        "log10 of the ratio",
        True,
    ),
    Rule(
        "dead units",
        "gates",
        "{units} nothing: {which}.",
        f"Their output is constant: its standard deviation over all steps is under {units.DEAD_DEVIATION:g}. A "
        "smaller hidden size may be enough.",
        units.dead,
        UNTRAINED,
        0.05,
        0.05,
        "fraction of the units",
        True,
    ),
    Rule(
        "unread direction",
        "flow",
        "The answers do not depend on {direction}.",
        "They depend on {other} only. Remove this direction, or check the weights that read its output.",
        flow.unread,
        BEFORE,
        2.0,
        2.0,
        "log10 of the ratio",
        True,
    ),
    Rule(
        "stuck gates",
        "saturation",
        "The gate {gate} of {direction} is stuck {word} in {percent} of its units.{others}",
        f"They are {{word}} at {units.STUCK:.0%} of the steps or more. A saturated gate passes no gradient. A smaller "
        "bias or a lower learning rate keeps gates in range.",
        units.stuck,
        UNTRAINED,
        0.1,
        0.1,
        "fraction of the units",
        True,
    ),
    Rule(
        "twins",
        "gates",
        "{pairs}: {which}.",
        "Their states rise and fall together, or with opposite signs (absolute correlation above "
        f"{units.TWIN_CORRELATION:g}). One unit of a pair is enough.",
        units.twins,
        UNTRAINED,
        0.05,
        0.05,
        "fraction of the units",
        True,
    ),
    Rule(
        "answers",
        "text",
        "{right}.",
        "Guessing {guess} scores {guess_score}. The section Training lists the scores on all data.",
        answers.answers,
        GUESS,
        0.02,
        unit="fraction of the answers",
    ),
    Rule(
        "unit that follows",
        "text",
        "Unit {unit} of {direction} follows “{label}”{opposite} (correlation {r}).",
        "Select the unit to see its state at each step.",
        marks.following,
        ORDER,
        0.1,
        0.69,
        "Fisher's z of the correlation",
        max_findings=2,
    ),
    Rule(
        "unit that counts",
        "text",
        "Unit {unit} of {direction} counts the steps{down} (correlation {r}).",
        "Its state grows or shrinks with the number of the step.",
        marks.counting,
        UNTRAINED,
        0.5,
        3.0,
        "Fisher's z of the correlation",
    ),
    Rule(
        "direction",
        "causes",
        "Holding {name} at its mean costs {cost}.",
        "The mean is taken over these steps. The loss increases by {loss} {unit}.",
        answers.direction,
        TARGETS,
        0.02,
        0.02,
        "fraction of the loss with shuffled targets",
    ),
    Rule(
        "window",
        "causes",
        "{window} most: {cost}.",
        "Holding all states at their means in this window{text} increases the loss by {loss} {unit}.",
        answers.window,
        TARGETS,
        0.02,
        0.02,
        "fraction of the loss with shuffled targets",
    ),
    Rule(
        "open forget gates",
        "saturation",
        "{percent} of the {gates} of {direction} are {limit}.",
        "Open forget gates keep the states of their units from step to step. They are the long memory of the network.",
        units.open_gates,
        UNTRAINED,
        0.2,
        0.25,
        "fraction of the values",
    ),
    Rule(
        "lasting units",
        "memory",
        "{units} half of {state} for longer than the {longest} steps of the longest sequence.",
        "Unit {unit} keeps half of it for {half_life}.",
        units.lasting,
        UNTRAINED,
        1.0,
        unit="log2 of the half-life in steps",
    ),
    Rule(
        "lasting differences",
        "dynamics",
        "A small difference in the state of {direction} shrinks by a factor of e in {steps}.",
        "The layer remembers its past for longer than without training.",
        dynamics.lasting_differences,
        UNTRAINED,
        1.0,
        unit="log2 of the time constant in steps",
    ),
    Rule(
        "growing differences",
        "dynamics",
        "A small difference in the state of {direction} grows by {percent} % per step.",
        "The layer is chaotic on these steps. Its states depend on tiny differences in the past.",
        dynamics.growing_differences,
        UNTRAINED,
        0.05,
        0.05,
        "nats per step",
    ),
    Rule(
        "stable points",
        "dynamics",
        "{direction} has {count} stable fixed points under its mean input.",
        "The state stays near such a point while the input is near its mean. Each point can store a memory.",
        dynamics.stable_points,
        UNTRAINED,
        0.5,
        1.5,
        "stable fixed points",
    ),
    Rule(
        "vanishing gradient",
        "flow",
        "The gradient of {direction} falls below 1 % within {reach}. Before training, it does so within {before}.",
        "Earlier steps hardly affect the answer and contribute little to training.",
        flow.vanishing,
        BEFORE,
        1.0,
        1.0,
        "log2 of the ratio",
    ),
)
"""All rules, faults first."""


class Finding(NamedTuple):
    """One finding of a report.

    Attributes:
        rule: the name of the rule
        section: the section of the report that shows it
        sentence: the statement with its numbers
        meaning: the consequence, or the remedy
        evidence: size, lower end of the interval and threshold as text
        fault: whether the finding is a fault that should be repaired
        unit: the label of the direction and the index of the hidden unit, if the finding is about one
    """

    rule: str
    section: str
    sentence: str
    meaning: str
    evidence: str
    fault: bool = False
    unit: tuple[str, int] | None = None


def findings(study: Study) -> list[Finding]:
    """The findings of a study, in the order of the rules."""
    all_findings: list[Finding] = []
    for rule in RULES:
        for effect, low, limit in significant(study, rule):
            size, bound, least = (rounded(each, 2) for each in (effect.value, low, limit))
            evidence = f"Size {size} ({rule.unit}), lower bound {bound}, threshold {least}"
            sentence, meaning = rule.sentence.format(**effect.words), rule.meaning.format(**effect.words)
            all_findings.append(Finding(rule.name, rule.section, sentence, meaning, evidence, rule.fault, effect.unit))
    return all_findings


def significant(study: Study, rule: Rule) -> list[tuple[Effect, float, float]]:
    """The effects of a rule that exceed their thresholds, each with the lower end of its interval and its threshold."""
    large = [(each, limit) for each in rule.measure(study) if each.value > (limit := threshold(study, rule, each))]
    found = [(each, low, limit) for each, limit in large if (low := each.interval().low) > limit]
    return sorted(found, key=lambda row: row[2] - row[1])[: rule.max_findings]


def threshold(study: Study, rule: Rule, effect: Effect) -> float:
    """The value that an effect must exceed. It is computed once per study, rule and key."""
    key = f"{rule.name}: {effect.key}"
    if key not in study.thresholds:
        limit = max(_null_effect(study, rule, effect) + rule.min_excess, rule.minimum)
        if rule.null == ORDER and effect.value > limit:
            marks.add_controls(study, rule.name)
            limit = max(_null_effect(study, rule, effect) + rule.min_excess, rule.minimum)
        study.thresholds[key] = limit
    return study.thresholds[key]


def _null_effect(study: Study, rule: Rule, effect: Effect) -> float:
    """The largest effect under the null model."""
    controls = _controls(study, rule) if rule.null in (UNTRAINED, ORDER) else []
    return max([effect.null, *(each[effect.key] for each in controls if effect.key in each)])


def _controls(study: Study, rule: Rule) -> list[dict[str, float]]:
    """The effects of a rule in each untrained network, by key."""
    if rule.name not in study.nulls:
        study.nulls[rule.name] = [
            {each.key: each.value for each in rule.measure(Study("", "", study.passages, directions))}
            for directions in study.controls
        ]
    return study.nulls[rule.name]


def markdown_table() -> str:
    """The rules as a Markdown table, for docs/report.md."""
    rows = ["| finding | sentence | measure | null model | threshold |", "|---|---|---|---|---|"]
    for rule in RULES:
        measure = (rule.measure.__doc__ or "").strip().rstrip(".")
        over = f"{rule.min_excess:g} over the null model" if rule.null != NO_NULL_MODEL else ""
        minimum = f"{rule.minimum:g} at least" if rule.minimum > 0 else ""
        limits = ", ".join(each for each in (over, minimum) if each)
        cells = (rule.name, rule.sentence, f"{measure} ({rule.unit})", rule.null, limits)
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"
