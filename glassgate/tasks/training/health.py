"""Symptoms of a failing training: measurements, one table of rules, a sentence with a remedy for each."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from glassgate.tasks.data.batches import Encoded, sample
from glassgate.tasks.data.vocabulary import UNKNOWN
from glassgate.tasks.definition import Definition
from glassgate.tasks.options import Options

_SAMPLE = 20_000  # units of the dev data that are looked at
_FIRST = 3  # steps whose loss is that of the untrained network
_PATIENCE = 3  # epochs after which a training should have come to something
_EVERY = 10  # steps between two gradients that are measured


@dataclass
class Signs:
    """Measurements of a training after an epoch.

    Attributes:
        epoch: how many are done, of how many
        first: the loss of the first steps, before the network has learned
        recent: the loss over the last third of the epoch
        norms: of gradients, before they are clipped
        accuracy: on the dev data; None without
        commonest: the fraction of the dev data's right answers that are the commonest one
        unknown: the fraction of the dev data's units that the vocabulary lacks
        missing: the labels that the dev data lacks
        labels: how many there are
    """

    options: Options
    epoch: int
    first: float
    recent: float
    norms: Sequence[float] = ()
    accuracy: float | None = None
    commonest: float = 0.0
    unknown: float = 0.0
    missing: Sequence[str] = ()
    labels: int = 0

    @property
    def late(self) -> bool:
        """Whether the training should have come to something."""
        return self.epoch >= min(_PATIENCE, self.options.epochs)


class Rule(NamedTuple):
    """A symptom and its sentence."""

    name: str
    holds: Callable[[Signs], bool]
    sentence: Callable[[Signs], str]


RULES = (
    Rule(
        "rate too high",
        lambda s: s.first > 0 and s.recent > 1.2 * s.first,
        lambda s: (
            f"the loss has risen from {s.first:.3g} to {s.recent:.3g}: the learning rate is too high; try "
            f"--learning-rate {s.options.learning_rate / 10:g}"
        ),
    ),
    Rule(
        "loss does not fall",
        lambda s: s.late and s.first > 0.01 and 0.98 * s.first < s.recent <= 1.2 * s.first,
        lambda s: (
            f"the loss does not fall: {s.first:.3g} in the first steps, {s.recent:.3g} after {_epochs(s)}; try "
            f"another --learning-rate than {s.options.learning_rate:g}, and see with `glassgate look` that labels and "
            "units are taken from the right columns"
        ),
    ),
    Rule(
        "no better than one answer",
        lambda s: s.late and s.accuracy is not None and s.accuracy <= s.commonest + 0.001,
        lambda s: (
            f"after {_epochs(s)} the accuracy on the dev data, {s.accuracy:.2%}, is no better than always giving "
            f"the commonest answer, {s.commonest:.2%}; see with `glassgate look` that labels and units are taken from "
            "the right columns, then try more --epochs and another --learning-rate"
        ),
    ),
    Rule(
        "exploding gradients",
        lambda s: len(s.norms) > 0 and median(s.norms) > 100,
        lambda s: (
            f"gradients explode: their norm is {median(s.norms):.3g} in half of the steps"
            + (f", and cut to {s.options.clip:g}" if s.options.clip else "; set --clip 1")
            + f"; try --learning-rate {s.options.learning_rate / 10:g}, or a cell with gates, such as --cell lstm"
        ),
    ),
    Rule(
        "vanishing gradients",
        lambda s: len(s.norms) > 0 and median(s.norms) < 1e-6 and s.recent > 0.05,
        lambda s: (
            f"gradients vanish: their norm is {median(s.norms):.1e} in half of the steps, and the loss still "
            f"{s.recent:.3g}; try a lower --learning-rate, --init xavier_orthogonal, or a cell with gates, such as lstm"
        ),
    ),
    Rule(
        "unknown units",
        lambda s: s.unknown > 0.5,
        lambda s: (
            f"{s.unknown:.0%} of the dev data is unknown to the vocabulary of the training data; see that both "
            "are written alike, lower --least-count, or train on more data"
        ),
    ),
    Rule(
        "labels without examples",
        lambda s: len(s.missing) > 1 and len(s.missing) * 4 > s.labels,
        lambda s: (
            f"the dev data has no example of {len(s.missing)} of {s.labels} labels ({_some(s.missing)}), so the "
            "scores say nothing of them; give a --dev file that has some of each"
        ),
    ),
)
"""The symptoms; each is reported once, after the first epoch that shows it."""


@dataclass
class Health:
    """Measures a training and reports each symptom once.

    Attributes:
        said: the sentences
    """

    task: Definition[Any, Any, Any]
    dev: Sequence[Encoded]
    said: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)

    def step(self, loss: float) -> None:
        """Take the loss of a step; one that is not finite was left out."""
        if not math.isfinite(loss):
            return
        if len(self.first) < _FIRST:
            self.first.append(loss)
        self.losses.append(loss)

    def measures(self, step: int) -> bool:
        """Whether the gradient of a step, counted from 0, is to be measured."""
        return step % _EVERY == 0 or step < _EVERY

    def gradient(self, norm: float) -> None:
        """Take a gradient's norm."""
        self.norms.append(norm if math.isfinite(norm) else math.inf)

    def check(self, epoch: int, scores: Mapping[str, float]) -> list[str]:
        """Return sentences about new symptoms after an epoch, counted from 1."""
        if not self.losses:
            return []
        signs = Signs(
            self.task.options,
            epoch,
            min(self.first),  # later ones of the first steps may be worse already
            float(np.mean(self.losses[-max(1, len(self.losses) // 3) :])),
            self.norms,
            scores.get("accuracy"),
        )
        self._look_at_dev(signs)
        found = [rule for rule in RULES if rule.name not in self.rules and rule.holds(signs)]
        sentences = [rule.sentence(signs) for rule in found]
        self.rules += [rule.name for rule in found]
        self.said += sentences
        self.losses, self.norms = [], []
        return sentences

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, ready for JSON."""
        return {"said": self.said, "rules": self.rules, "first": self.first, "losses": self.losses, "norms": self.norms}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        for name, value in state.items():
            setattr(self, name, list(value))

    def _look_at_dev(self, signs: Signs) -> None:
        if not self.dev:
            return
        drawn = sample(self.dev, _SAMPLE, self.task.options.seed)
        units, answers = (_numbers(drawn, name) for name in (self.task.given_field, self.task.answer_field))
        signs.unknown = float((units == UNKNOWN).mean()) if len(units) else 0.0
        if not len(answers):
            signs.accuracy = None
            return
        counts = np.bincount(answers)
        signs.commonest = float(counts.max() / len(answers))
        if "labels" in self.task.vocabularies:
            symbols = self.task.vocabularies["labels"].symbols
            there = counts.nonzero()[0]
            signs.missing = [symbol for number, symbol in enumerate(symbols) if number not in there]
            signs.labels = len(symbols)


def _numbers(drawn: Sequence[Encoded], name: str) -> np.ndarray:
    """A field of examples, where it is one number for each unit or for each example; without its padding."""
    fields = [np.atleast_1d(each[name]) for each in drawn if name in each and each[name].ndim < 2]
    numbers = np.concatenate([np.zeros(0, np.int64), *fields])
    return numbers[numbers >= 0] if numbers.dtype.kind == "i" else numbers[:0]


def _epochs(signs: Signs) -> str:
    return "1 epoch" if signs.epoch == 1 else f"{signs.epoch} epochs"


def _some(labels: Sequence[str], most: int = 6) -> str:
    return ", ".join(labels[:most]) + (", ..." if len(labels) > most else "")
