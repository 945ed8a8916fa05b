"""Detects the symptoms of a failing training in measurements. The message about each symptom suggests a remedy."""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any

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
        epoch, steps: the numbers of finished epochs and steps
        first, recent: the losses of the first steps, before the network has learned, and of the last third of the epoch
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
    first: Sequence[float]
    recent: Sequence[float]
    norms: Sequence[float] = ()
    accuracy: float | None = None
    baseline: float = 0.0
    unknown: float = 0.0
    missing: Sequence[str] = ()
    labels: int = 0


def symptoms(m: Measurements) -> dict[str, str]:
    """Return the symptoms that measurements show, by name, each with the message for the user."""
    shown, options = {}, m.options
    lower_rate = f"try --learning-rate {options.learning_rate / 10:g}"
    look = "check with `glassgate look` that labels and tokens are taken from the right columns"
    should_have_improved = m.epoch >= min(_MIN_EPOCHS, options.epochs) and m.steps >= _MIN_STEPS
    first, lowest, recent = float(np.mean(m.first)), min(m.first), float(np.mean(m.recent))
    highest = max(1.2 * lowest, lowest + 2 * float(np.std(m.recent)))  # losses vary from step to step
    norm = median(m.norms) if m.norms else 1.0
    if lowest > 0 and recent > highest:  # at a rate that is too high, the loss rises from the second step on
        shown["rate too high"] = (
            f"the loss has risen from {lowest:.3g} to {recent:.3g}: the learning rate is too high; {lower_rate}"
        )
    elif should_have_improved and first > 0.01 and recent > 0.98 * first:
        shown["loss does not fall"] = (
            f"the loss does not fall: {first:.3g} in the first steps, {recent:.3g} after "
            f"{plural(m.epoch, 'epoch')}; try another --learning-rate than {options.learning_rate:g}, and {look}"
        )
    if should_have_improved and m.accuracy is not None and m.accuracy <= m.baseline + 0.001:
        shown["no better than one answer"] = (
            f"after {plural(m.epoch, 'epoch')} the accuracy on the dev data, {m.accuracy:.2%}, is no better than "
            f"always giving the most common answer, {m.baseline:.2%}; {look}, then try more --epochs and another "
            "--learning-rate"
        )
    if norm > 100:
        clipped = f", clipped to {options.clip:g}" if options.clip else "; set --clip 1"
        shown["exploding gradients"] = (
            f"gradients explode: their median norm is {norm:.3g}{clipped}; {lower_rate}, or a cell with gates, such as "
            "--cell lstm"
        )
    if norm < 1e-6 and recent > 0.05:
        shown["vanishing gradients"] = (
            f"gradients vanish: their median norm is {norm:.1e}, and the loss is still {recent:.3g}; "
            "try a lower --learning-rate, --init xavier_orthogonal, or a cell with gates, such as lstm"
        )
    if m.unknown > 0.5:
        shown["unknown tokens"] = (
            f"{m.unknown:.0%} of the tokens of the dev data are not in the vocabulary of the training data; check that "
            "both have the same language, tokens and case, lower --least-count, or train on more data"
        )
    if len(m.missing) > max(1, m.labels / 4):
        shown["labels without examples"] = (
            f"the dev data has no example of {len(m.missing)} of {m.labels} labels ({shortened_list(m.missing, 6)}), "
            "so the scores do not cover them; use a --dev file with examples of every label"
        )
    return shown


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
        recent, accuracy = self.losses[-max(1, len(self.losses) // 3) :], scores.get("accuracy")
        measurements = Measurements(
            self.task.options, epoch, self.steps, self.first, recent, norms=self.norms, accuracy=accuracy
        )
        self._measure_dev(measurements)
        shown, notes = symptoms(measurements), []
        for name in [name for name in self.reported if name not in shown]:
            ended = self.reported.pop(name)
            self.messages.remove(ended)
            notes.append(f"withdrawn, as it is no longer true: {ended}")
        for name, message in shown.items():
            if name not in self.reported:
                self.reported[name] = message
                self.messages.append(message)
                notes.append(f"warning: {message}")
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
