"""The findings of a report: a table of rules, each with a measure, a null model and a threshold.

A null model is a model without the structure in question, such as an untrained network. A rule gives a finding if the
lower end of an effect's bootstrap interval exceeds the threshold. The threshold is the effect under the null model plus
a minimum excess. The modules in `effects` compute the measures. The catalogues in `languages` contain the sentences.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from glassgate.glass.effects import answers, dynamics, flow, marks, units
from glassgate.glass.effects.effect import Effect
from glassgate.glass.languages import say
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
        measure: yields the effects of a study
        null: the null model in words
        min_excess: the minimum excess over the effect under the null model, in the unit of the measure
        minimum: the minimum of the threshold, for any null model
        fault: whether the finding is a fault that should be repaired
        max_findings: the maximum number of findings of this rule. The strongest are kept
    """

    name: str
    section: str
    measure: Callable[[Study], Iterator[Effect]]
    null: str
    min_excess: float
    minimum: float = -np.inf
    fault: bool = False
    max_findings: int = 99

    def say(self, part: str, **words: object) -> str:
        """A message about findings of this rule in the current language.

        Args:
            part: "sentence", "meaning" for the consequence or the remedy, or "unit" for the unit of the measure
            words: the words of an effect
        """
        return say(f"finding.{self.name.replace(' ', '_')}.{part}", **words)


RULES = (
    Rule("no better than a guess", "text", answers.no_better, GUESS, -0.01, fault=True),
    Rule("overfitting", "training", answers.overfitting, NO_NULL_MODEL, 0.05, 0.05, fault=True),
    Rule("exploding gradient", "flow", flow.exploding, BEFORE, 0.5, 1.0, fault=True),
    Rule("dead units", "gates", units.dead, UNTRAINED, 0.05, 0.05, fault=True),
    Rule("unread direction", "flow", flow.unread, BEFORE, 2.0, 2.0, fault=True),
    Rule("stuck gates", "saturation", units.stuck, UNTRAINED, 0.1, 0.1, fault=True),
    Rule("twins", "gates", units.twins, UNTRAINED, 0.05, 0.05, fault=True),
    Rule("answers", "text", answers.answers, GUESS, 0.02),
    Rule("unit that follows", "text", marks.following, ORDER, 0.1, 0.69, max_findings=2),
    Rule("unit that counts", "text", marks.counting, UNTRAINED, 0.5, 3.0),
    Rule("direction", "causes", answers.direction, TARGETS, 0.02, 0.02),
    Rule("window", "causes", answers.window, TARGETS, 0.02, 0.02),
    Rule("open forget gates", "saturation", units.open_gates, UNTRAINED, 0.2, 0.25),
    Rule("lasting units", "memory", units.lasting, UNTRAINED, 1.0),
    Rule("lasting differences", "dynamics", dynamics.lasting_differences, UNTRAINED, 1.0),
    Rule("growing differences", "dynamics", dynamics.growing_differences, UNTRAINED, 0.05, 0.05),
    Rule("stable points", "dynamics", dynamics.stable_points, UNTRAINED, 0.5, 1.5),
    Rule("vanishing gradient", "flow", flow.vanishing, BEFORE, 1.0, 1.0),
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
            evidence = say("findings.evidence", size=size, unit=rule.say("unit"), bound=bound, threshold=least)
            sentence, meaning = rule.say("sentence", **effect.words), rule.say("meaning", **effect.words)
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
        limit = _limit(study, rule, effect)
        if rule.null == ORDER and effect.value > limit:
            marks.add_controls(study, rule.name)
            limit = _limit(study, rule, effect)
        study.thresholds[key] = limit
    return study.thresholds[key]


def _limit(study: Study, rule: Rule, effect: Effect) -> float:
    """The threshold from the controls that the study has: the largest effect under the null model plus the excess."""
    controls = _controls(study, rule) if rule.null in (UNTRAINED, ORDER) else []
    largest = max([effect.null, *(each[effect.key] for each in controls if effect.key in each)])
    return max(largest + rule.min_excess, rule.minimum)


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
    rows = ["| finding | measure | null model | over it | at least |", "|---|---|---|---|---|"]
    for rule in RULES:
        measure = (rule.measure.__doc__ or "").strip().rstrip(".")
        over = f"{rule.min_excess:g}" if rule.null != NO_NULL_MODEL else ""
        minimum = f"{rule.minimum:g}" if rule.minimum > 0 else ""
        rows.append(f"| {rule.name} | {measure} ({rule.say('unit')}) | {rule.null} | {over} | {minimum} |")
    return "\n".join(rows) + "\n"
