"""The options of classification."""

from dataclasses import dataclass
from typing import ClassVar

from glassgate.tasks.data.labelled import LabelledOptions
from glassgate.tasks.options import Options, changed, option

POOLINGS = ("last", "mean", "max", "attention")


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions(LabelledOptions):
    """The options of classification."""

    common: ClassVar = (*Options.common, "label_column", "pooling")

    data: str | None = changed("data", None, unset="Python's library")
    pooling: str = option("last", "how the states of all steps are combined", choices=POOLINGS)
