"""An effect: its size, its interval and its null model."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from glassgate.glass import bootstrap
from glassgate.glass.bootstrap import Interval
from glassgate.glass.study import Study


class Effect(NamedTuple):
    """The size of an effect.

    Attributes:
        key: the name of the effect, which is the same in every study of a network
        value: the size; larger is stronger
        interval: computes the bootstrap interval of the size. It is slow, so it is only called if needed
        words: the fields of the messages `sentence` and `meaning` of the rule, see `findings.Rule`
        null: the size under the rule's null model; 0 if there is none
        unit: the label of the direction and the unit, if the effect is about a unit
    """

    key: str
    value: float
    interval: Callable[[], Interval]
    words: Mapping[str, object]
    null: float = 0.0
    unit: tuple[str, int] | None = None


def passage_groups(study: Study) -> np.ndarray:
    """The resampling group (S,) of each step of a study."""
    return bootstrap.resampling_groups([len(each.steps) for each in study.passages])
