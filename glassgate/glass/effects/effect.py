"""The size of an effect, and its spread."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from glassgate.glass import spread
from glassgate.glass.spread import Interval
from glassgate.glass.study import Study


class Effect(NamedTuple):
    """The size of an effect.

    Attributes:
        key: its name, the same in every study of one network
        value: larger is stronger
        interval: computes its interval over passages, which takes longer than the value
        words: for the rule's sentence
        null: its size under the rule's null model where the study itself contains it
        unit: the direction's label and the unit that it is about, if any
    """

    key: str
    value: float
    interval: Callable[[], Interval]
    words: dict[str, str]
    null: float = 0.0
    unit: tuple[str, int] | None = None


def by_passage(study: Study) -> np.ndarray:
    """The group (S,) that each step of a study is resampled with."""
    return spread.groups([len(each.steps) for each in study.passages])
