"""Symptoms of a failing training: measurements, and a table of rules with a message and a remedy for each symptom."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from glassgate.tasks.data.batches import Encoded, sample
from glassgate.tasks.data.vocabulary import UNKNOWN
from glassgate.tasks.definition import Definition
from glassgate.tasks.options import Options
from glassgate.tasks.wording import plural, some

_SAMPLE = 20_000  # tokens of the dev data that are examined
_FIRST = 3  # steps whose loss is that of the untrained network
_PATIENCE = 3  # epochs after which the scores should have improved
_STEPS = 20  # steps before which no score can be expected to have improved
_ANSWERS = 20  # answers of the dev data below which an accuracy says little


@dataclass
class Measurements:
    """Measurements of a training after an epoch.

    Attributes:
        epoch: the number of finished epochs
        steps: the number of finished steps
        first: the mean loss of the first steps, before the network has learned
        lowest: the lowest of these losses; at too high a learning rate, the loss rises from the second step on
        recent: the mean loss over the last third of the epoch
        spread: the standard deviation of the loss over the same steps
        norms: norms of the gradients before clipping
        accuracy: the accuracy on the dev data; None if the task does not measure it
        most_common: the accuracy on the dev data of always giving its most common answer
        unknown: the fraction of the dev data's tokens that are not in the vocabulary
        missing: the labels without an example in the dev data
        labels: the number of labels
    """

    options: Options
    epoch: int
    steps: int
    first: float
    lowest: float
    recent: float
    spread: float = 0.0
    norms: Sequence[float] = ()
    accuracy: float | None = None
    most_common: float = 0.0
    unknown: float = 0.0
    missing: Sequence[str] = ()
    labels: int = 0

    @property
    def late(self) -> bool:
        """Whether the scores should have improved by now."""
        return self.epoch >= min(_PATIENCE, self.options.epochs) and self.steps >= _STEPS

    @property
    def risen(self) -> bool:
        """Whether the loss has risen by more than it varies from step to step."""
        return self.lowest > 0 and self.recent > max(1.2 * self.lowest, self.lowest + 2 * self.spread)


class Rule(NamedTuple):
    """A symptom and its sentence."""

    name: str
    holds: Callable[[Measurements], bool]
    sentence: Callable[[Measurements], str]


RULES = (
    Rule(
        "rate too high",
        lambda s: s.risen,
        lambda s: (
            f"the loss has risen from {s.lowest:.3g} to {s.recent:.3g}: the learning rate is too high; try "
            f"--learning-rate {s.options.learning_rate / 10:g}"
        ),
    ),
    Rule(
        "loss does not fall",
        lambda s: s.late and s.first > 0.01 and s.recent > 0.98 * s.first and not s.risen,
        lambda s: (
            f"the loss does not fall: {s.first:.3g} in the first steps, {s.recent:.3g} after "
            f"{plural(s.epoch, 'epoch')}; try "
            f"another --learning-rate than {s.options.learning_rate:g}, and check with `glassgate look` that labels "
            "and tokens are taken from the right columns"
        ),
    ),
    Rule(
        "no better than one answer",
        lambda s: s.late and s.accuracy is not None and s.accuracy <= s.most_common + 0.001,
        lambda s: (
            f"after {plural(s.epoch, 'epoch')} the accuracy on the dev data, {s.accuracy:.2%}, is no better than "
            f"always giving the most common answer, {s.most_common:.2%}; check with `glassgate look` that labels and "
            "tokens are taken from the right columns, then try more --epochs and another --learning-rate"
        ),
    ),
    Rule(
        "exploding gradients",
        lambda s: len(s.norms) > 0 and median(s.norms) > 100,
        lambda s: (
            f"gradients explode: their median norm is {median(s.norms):.3g}"
            + (f", clipped to {s.options.clip:g}" if s.options.clip else "; set --clip 1")
            + f"; try --learning-rate {s.options.learning_rate / 10:g}, or a cell with gates, such as --cell lstm"
        ),
    ),
    Rule(
        "vanishing gradients",
        lambda s: len(s.norms) > 0 and median(s.norms) < 1e-6 and s.recent > 0.05,
        lambda s: (
            f"gradients vanish: their median norm is {median(s.norms):.1e}, and the loss is still {s.recent:.3g}; try "
            "a lower --learning-rate, --init xavier_orthogonal, or a cell with gates, such as lstm"
        ),
    ),
    Rule(
        "unknown tokens",
        lambda s: s.unknown > 0.5,
        lambda s: (
            f"{s.unknown:.0%} of the tokens of the dev data are not in the vocabulary of the training data; check that "
            "both have the same language, tokens and case, lower --least-count, or train on more data"
        ),
    ),
    Rule(
        "labels without examples",
        lambda s: len(s.missing) > 1 and len(s.missing) * 4 > s.labels,
        lambda s: (
            f"the dev data has no example of {len(s.missing)} of {s.labels} labels ({some(s.missing, 6)}), so the "
            "scores do not cover them; use a --dev file with examples of every label"
        ),
    ),
)
"""The symptoms; each is reported once, after the first epoch that shows it."""


@dataclass
class Health:
    """Measures a training and reports each symptom once.

    Attributes:
        messages: the messages reported so far
    """

    task: Definition[Any, Any, Any]
    dev: Sequence[Encoded]
    messages: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    steps: int = 0
    norms: list[float] = field(default_factory=list)

    def step(self, loss: float) -> None:
        """Record the loss of a step. NaN and infinity are ignored: training has skipped the step."""
        if not math.isfinite(loss):
            return
        if len(self.first) < _FIRST:
            self.first.append(loss)
        self.losses.append(loss)
        self.steps += 1

    def gradient(self, norm: float) -> None:
        """Record the norm of a gradient."""
        self.norms.append(norm if math.isfinite(norm) else math.inf)

    def check(self, epoch: int, scores: Mapping[str, float]) -> list[str]:
        """Return messages about new symptoms after an epoch, counted from 1."""
        if not self.losses:
            return []
        recent = self.losses[-max(1, len(self.losses) // 3) :]
        measurements = Measurements(
            self.task.options,
            epoch,
            self.steps,
            first=float(np.mean(self.first)),
            lowest=min(self.first),
            recent=float(np.mean(recent)),
            spread=float(np.std(recent)),
            norms=self.norms,
            accuracy=scores.get("accuracy"),
        )
        self._measure_dev(measurements)
        broken = [rule for rule in RULES if rule.name not in self.rules and rule.holds(measurements)]
        sentences = [rule.sentence(measurements) for rule in broken]
        self.rules += [rule.name for rule in broken]
        self.messages += sentences
        self.losses, self.norms = [], []
        return sentences

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, as values for JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("task", "dev")}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state()` returned."""
        for name, value in state.items():
            setattr(self, name, value if name == "steps" else list(value))

    def _measure_dev(self, measurements: Measurements) -> None:
        if not self.dev:
            return
        drawn = sample(self.dev, _SAMPLE, self.task.options.seed)
        tokens, answers = (_indices(drawn, name) for name in (self.task.input_field, self.task.target_field))
        measurements.unknown = float((tokens == UNKNOWN).mean()) if len(tokens) else 0.0
        if len(answers) < _ANSWERS:
            measurements.accuracy = None
        if not len(answers):
            return
        counts = np.bincount(answers)
        measurements.most_common = float(counts.max() / len(answers))
        if "labels" in self.task.vocabularies:
            symbols = self.task.vocabularies["labels"].symbols
            present = counts.nonzero()[0]
            measurements.missing = [symbol for number, symbol in enumerate(symbols) if number not in present]
            measurements.labels = len(symbols)


def _indices(drawn: Sequence[Encoded], name: str) -> np.ndarray:
    """The indices in a field of all examples, without padding; empty if the field has other numbers than indices."""
    fields = [np.atleast_1d(each[name]) for each in drawn if name in each and each[name].ndim < 2]
    numbers = np.concatenate([np.zeros(0, np.int64), *fields])
    return numbers[numbers >= 0] if numbers.dtype.kind == "i" else numbers[:0]
