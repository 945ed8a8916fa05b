"""The options of classification."""

from dataclasses import dataclass
from typing import ClassVar

from glassgate.tasks.data.labelled import LabelledOptions
from glassgate.tasks.options import Options, option, override

POOLINGS = ("concat", "last", "mean", "max", "attention")
"""The ways to combine the outputs of all steps: the last one, their mean, their maximum, or a weighted mean.

"concat" concatenates the last one, the mean and the maximum (Howard & Ruder 2018, section 3.3).
"""


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions(LabelledOptions):
    """The options of classification."""

    common: ClassVar = (*Options.common, "label_column", "pooling")

    data: str | None = override("data", None, if_unset="Python's library")
    pooling: str = option("concat", "how the states of all steps are combined", choices=POOLINGS)
