"""Rules that detect the symptoms of a failing training in measurements. The message of each rule suggests a remedy."""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from glassgate.tasks.data.batches import Encoded, sample
from glassgate.tasks.data.vocabulary import UNKNOWN
from glassgate.tasks.definition import Definition
from glassgate.tasks.options import Options
from glassgate.tasks.wording import plural, shortened_list

_SAMPLE = 20_000  # tokens of the dev data that are examined
_FIRST_STEPS = 3  # steps before the network has learned
# The loss and the scores should have improved after this number of epochs and this number of steps.
_MIN_EPOCHS = 3
_MIN_STEPS = 20
_MIN_ANSWERS = 20  # with fewer answers, the accuracy on the dev data is not judged


@dataclass
class Measurements:
    """Measurements of a training after an epoch.

    Attributes:
        epoch: the number of finished epochs
        steps: the number of finished steps
        first_loss: the mean loss of the first steps, before the network has learned
        lowest_first_loss: the lowest loss of the first steps. If the rate is too high, the loss rises from the second
            step on
        recent_loss: the mean loss over the last third of the epoch
        spread: the standard deviation of the losses in `recent_loss`
        norms: norms of the gradients before clipping
        accuracy: the accuracy on the dev data; None if the task does not measure it
        baseline: the accuracy on the dev data if every answer is the most common answer
        unknown: the fraction of the dev data's tokens that are not in the vocabulary
        missing: the labels without an example in the dev data
        labels: the number of labels
    """

    options: Options
    epoch: int
    steps: int
    first_loss: float
    lowest_first_loss: float
    recent_loss: float
    spread: float = 0.0
    norms: Sequence[float] = ()
    accuracy: float | None = None
    baseline: float = 0.0
    unknown: float = 0.0
    missing: Sequence[str] = ()
    labels: int = 0

    @property
    def should_have_improved(self) -> bool:
        """Whether the loss and the scores should have improved by now."""
        return self.epoch >= min(_MIN_EPOCHS, self.options.epochs) and self.steps >= _MIN_STEPS

    @property
    def loss_has_risen(self) -> bool:
        """Whether the loss has risen by more than it varies from step to step."""
        return self.lowest_first_loss > 0 and self.recent_loss > max(
            1.2 * self.lowest_first_loss, self.lowest_first_loss + 2 * self.spread
        )


class Rule(NamedTuple):
    """A symptom: its name, whether measurements show it, and the message for the user."""

    name: str
    holds: Callable[[Measurements], bool]
    message: Callable[[Measurements], str]


RULES = (
    Rule(
        "rate too high",
        lambda s: s.loss_has_risen,
        lambda s: (
            f"the loss has risen from {s.lowest_first_loss:.3g} to {s.recent_loss:.3g}: the learning rate is too high; "
            f"try --learning-rate {s.options.learning_rate / 10:g}"
        ),
    ),
    Rule(
        "loss does not fall",
        lambda s: (
            s.should_have_improved
            and s.first_loss > 0.01
            and s.recent_loss > 0.98 * s.first_loss
            and not s.loss_has_risen
        ),
        lambda s: (
            f"the loss does not fall: {s.first_loss:.3g} in the first steps, {s.recent_loss:.3g} after "
            f"{plural(s.epoch, 'epoch')}; try "
            f"another --learning-rate than {s.options.learning_rate:g}, and check with `glassgate look` that labels "
            "and tokens are taken from the right columns"
        ),
    ),
    Rule(
        "no better than one answer",
        lambda s: s.should_have_improved and s.accuracy is not None and s.accuracy <= s.baseline + 0.001,
        lambda s: (
            f"after {plural(s.epoch, 'epoch')} the accuracy on the dev data, {s.accuracy:.2%}, is no better than "
            f"always giving the most common answer, {s.baseline:.2%}; check with `glassgate look` that labels and "
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
        lambda s: len(s.norms) > 0 and median(s.norms) < 1e-6 and s.recent_loss > 0.05,
        lambda s: (
            f"gradients vanish: their median norm is {median(s.norms):.1e}, and the loss is still {s.recent_loss:.3g}; "
            "try a lower --learning-rate, --init xavier_orthogonal, or a cell with gates, such as lstm"
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
            f"the dev data has no example of {len(s.missing)} of {s.labels} labels ({shortened_list(s.missing, 6)}), "
            "so the scores do not cover them; use a --dev file with examples of every label"
        ),
    ),
)
"""The symptoms; each is reported after the first epoch that shows it, and withdrawn after an epoch that does not."""


@dataclass
class Health:
    """Measures a training, reports each symptom once, and withdraws the report when the symptom has ended.

    Attributes:
        messages: the messages that hold
        reported: the message of each symptom among them, by its name
        first: the losses of the first steps
        losses, norms: the losses of the steps and the norms of the gradients since the last check
    """

    task: Definition[Any, Any, Any]
    dev: Sequence[Encoded]
    messages: list[str] = field(default_factory=list)
    reported: dict[str, str] = field(default_factory=dict)
    first: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    steps: int = 0
    norms: list[float] = field(default_factory=list)

    def step(self, loss: float) -> None:
        """Record the loss of a step. NaN and infinity are ignored: training continues while the weights are finite."""
        if not math.isfinite(loss):
            return
        if len(self.first) < _FIRST_STEPS:
            self.first.append(loss)
        self.losses.append(loss)
        self.steps += 1

    def gradient(self, norm: float) -> None:
        """Record the norm of a gradient."""
        self.norms.append(norm if math.isfinite(norm) else math.inf)

    def check(self, epoch: int, scores: Mapping[str, float]) -> list[str]:
        """Return notes about new symptoms, and about those that have ended.

        Args:
            epoch: the number of the finished epoch, from 1
            scores: the scores on the dev data
        """
        if not self.losses:
            return []
        recent = self.losses[-max(1, len(self.losses) // 3) :]
        measurements = Measurements(
            self.task.options,
            epoch,
            self.steps,
            first_loss=float(np.mean(self.first)),
            lowest_first_loss=min(self.first),
            recent_loss=float(np.mean(recent)),
            spread=float(np.std(recent)),
            norms=self.norms,
            accuracy=scores.get("accuracy"),
        )
        self._measure_dev(measurements)
        notes = []
        for rule in RULES:
            holds, message = rule.holds(measurements), self.reported.get(rule.name)
            if holds and message is None:
                self.reported[rule.name] = rule.message(measurements)
                self.messages.append(self.reported[rule.name])
                notes.append(f"warning: {self.reported[rule.name]}")
            elif message is not None and not holds:
                self.messages.remove(self.reported.pop(rule.name))
                notes.append(f"withdrawn, as it is no longer true: {message}")
        self.losses, self.norms = [], []
        return notes

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, as values for JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("task", "dev")}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state()` returned."""
        for name, value in state.items():
            setattr(self, name, copy(value))

    def _measure_dev(self, measurements: Measurements) -> None:
        if not self.dev:
            return
        examples = sample(self.dev, _SAMPLE, self.task.options.seed)
        tokens, answers = (_indices(examples, name) for name in (self.task.input_field, self.task.target_field))
        measurements.unknown = float((tokens == UNKNOWN).mean()) if len(tokens) else 0.0
        if len(answers) < _MIN_ANSWERS:
            measurements.accuracy = None
        if not len(answers):
            return
        counts = np.bincount(answers)
        measurements.baseline = float(counts.max() / len(answers))
        if "labels" in self.task.vocabularies:
            symbols = self.task.vocabularies["labels"].symbols
            present = counts.nonzero()[0]
            measurements.missing = [symbol for index, symbol in enumerate(symbols) if index not in present]
            measurements.labels = len(symbols)


def _indices(examples: Sequence[Encoded], name: str) -> np.ndarray:
    """The indices in a field of all examples, without padding; empty if the field does not contain indices."""
    fields = [np.atleast_1d(each[name]) for each in examples if name in each and each[name].ndim < 2]
    numbers = np.concatenate([np.zeros(0, np.int64), *fields])
    return numbers[numbers >= 0] if numbers.dtype.kind == "i" else numbers[:0]
