"""The options of classification."""

from dataclasses import dataclass
from typing import ClassVar

from glassgate.tasks.data import labelled
from glassgate.tasks.data import texts as text
from glassgate.tasks.options import Options, option

POOLINGS = ("last", "mean", "max", "attention")


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions(Options):
    """The options of classification."""

    common: ClassVar = (*Options.common, "label_column", "pooling")

    format: str = option("auto", "format of the files; auto detects it", group="data", choices=labelled.FORMATS)
    text_column: str = option("text", "text column: a name, or a number from 1", group="data")
    label_column: str = option("label", "label column: a name, or a number from 1", group="data")
    unit: str = option("word", "unit that a text is split into", group="data", choices=text.UNITS)
    missing: str = option("error", "treatment of missing values", group="data", choices=labelled.MISSING)
    pooling: str = option("last", "how the states of all steps are combined", choices=POOLINGS)
    least_count: int = option(2, "occurrences in training that give a token its own vector", least=1)
